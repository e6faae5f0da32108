"""A recurrent spiking network that learns from an error, by e-prop or by backpropagation.

Both ways have the same network, the same error, the same regularization of firing rates and the
same optimizer. They differ in who makes the gradients: two rules without a graph, or autograd
through time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import lightning.pytorch as pl
import torch
from _quiet import quiet
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lightning_accum import CellSpec, DeltaRule, EProp
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.functional import Triangular, trace
from lightning_accum.nn import LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import RandomFeedback, SymmetricFeedback

TITLES = {
    "symmetric": "e-prop, symmetric feedback",
    "random": "e-prop, random feedback",
    "bptt": "backpropagation through time",
}
REFITTED = "e-prop, readout refitted"
LEARNERS = tuple(TITLES)
TC_READOUT = 20.0  # ms


class Recurrent(pl.LightningModule):
    """Input → recurrent spiking neurons → leaky readout, ``[T, B, inputs]`` to ``[T, B, outputs]``.

    A subclass says what the error is.

    Args:
        inputs: number of inputs.
        neurons: number of recurrent neurons.
        outputs: number of outputs.
        learner: ``"symmetric"`` or ``"random"`` for e-prop with such feedback, ``"bptt"`` for
            autograd through time.
        lr: rate of Adam.
        penalty: strength of the regularization of firing rates.
        target_rate: firing rate of the penalty, in Hz.
        gain: factor of the input's first weights.
        **neuron: options of the neurons.
    """

    graded_input = False  # spikes

    def __init__(
        self,
        inputs: int,
        neurons: int,
        outputs: int,
        learner: str,
        lr: float,
        penalty: float,
        target_rate: float,
        gain: float = 1.0,
        **neuron: Any,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.learner, self.lr, self.penalty, self.target_rate = learner, lr, penalty, target_rate
        self.fc = nn.Linear(inputs, neurons, bias=False)
        nn.init.normal_(self.fc.weight, std=gain * inputs**-0.5)
        self.lif = SurrogateLIF(
            neurons,
            recurrent=True,
            gradient="time" if learner == "bptt" else "none",
            surrogate=Triangular(dampening=0.1),
            time_dim=0,
            **neuron,
        )
        self.readout = nn.Linear(neurons, outputs, bias=False)
        self.leak = LeakyIntegrator(outputs, tc_mem=TC_READOUT, time_dim=0)
        self.spikes = torch.empty(0)
        self.history: list[float] = []

    def error(self, y: Tensor, target: Tensor) -> Tensor:
        """Returns the gradient of each sample's loss by the outputs, ``[T, B, outputs]``."""
        raise NotImplementedError

    def score(self, y: Tensor, target: Tensor) -> float:
        """Returns how well the outputs fit."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Returns the outputs; the network starts at rest."""
        self.lif.reset()
        self.leak.reset()
        self.spikes = self.lif(self.fc(x))
        y: Tensor = self.leak(self.readout(self.spikes))
        return y

    @torch.no_grad()
    def filtered(self, x: Tensor) -> Tensor:
        """Returns what the readout weighs, the filtered spikes ``[T, B, neurons]``."""
        self(x)
        return trace(self.spikes, self.leak.decay)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        x, target = batch
        optimizer = self.optimizers()
        optimizer.zero_grad()
        y = self(x)
        error = self.error(y.detach(), target)
        self.history.append(self.score(y.detach(), target))
        if self.learner == "bptt":
            rates = self.spikes.mean((0, 1)) - self.target_rate / 1000
            loss = (y * error).sum() / x.shape[1]  # its gradient by y is the error
            self.manual_backward(loss + self.penalty * len(x) * rates.square().sum() / 2)
        else:
            for callback in self.trainer.callbacks:
                if isinstance(callback, CellTrainerCallback):
                    callback.updates_as_gradients(error=error)
        for parameter in self.parameters():
            nn.utils.clip_grad_norm_([parameter], 1.0)
        optimizer.step()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=self.lr)

    def callbacks(self, seed: int) -> list[CellTrainerCallback]:
        """Returns what makes the gradients without autograd.

        Args:
            seed: of random feedback.
        """
        if self.learner == "bptt":
            return []
        classes, neurons = self.readout.weight.shape
        symmetric = self.learner == "symmetric"
        rule = EProp(
            1.0,
            SymmetricFeedback("readout")
            if symmetric
            else RandomFeedback(classes, neurons, seed=seed),
            tc_readout=TC_READOUT,
            regularization=self.penalty,
            target_rate=self.target_rate,
        )
        graded = {"graded_input": self.graded_input}
        hidden = {"input": CellSpec("fc", "lif", overrides=graded)}
        hidden["recurrent"] = CellSpec("lif.recurrent", "lif")
        output = {"output": CellSpec("readout", "leak")}
        rules = ((rule, hidden), (DeltaRule(1.0), output))
        return [CellTrainerCallback(*each, log=False, time_dim=0) for each in rules]

    def learn(self, batches: Iterable[tuple[Tensor, Tensor]], seed: int = 0) -> list[float]:
        """Trains on batches, and returns the score of each before its update.

        Args:
            batches: input ``[T, B, inputs]`` and target.
            seed: of random feedback.
        """
        quiet()
        trainer = pl.Trainer(
            max_epochs=1,
            accelerator="cpu",
            callbacks=list(self.callbacks(seed)),
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        trainer.fit(self, DataLoader(list(batches), batch_size=None))
        return self.history
