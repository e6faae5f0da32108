"""Networks that learn a class from an error: by e-prop, by BPTT, by the naive loop of e-prop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_accum import Cell, DeltaRule, EProp, RuleTrainer
from lightning_accum import nn as layers
from lightning_accum.functional import decay_factor
from lightning_accum.nn import LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import SymmetricFeedback

TC, TC_READOUT, LR = 20.0, 20.0, 1e-4


class Task(NamedTuple):
    """One hidden layer of spiking neurons and a leaky readout, whose last steps tell the class."""

    inputs: int
    neurons: int
    classes: int
    recurrent: bool
    beta: float = 0.0
    steps: int = 250
    batch: int = 32
    density: float = 0.02

    def data(self) -> tuple[Tensor, Tensor]:
        """Boolean input ``[T, B, inputs]``, and targets ``[B]``."""
        generator = torch.Generator().manual_seed(0)
        shape = (self.steps, self.batch, self.inputs)
        x = torch.rand(shape, generator=generator) < self.density
        return x, torch.randint(self.classes, (self.batch,), generator=generator)

    def __str__(self) -> str:
        kind = "recurrent" * self.recurrent + " adaptive" * bool(self.beta)
        return (
            f"{kind} {self.inputs} → {self.neurons} → {self.classes}, batch {self.batch},"
            f" {self.steps} steps, input at {self.density:.0%}"
        ).strip()


class Network(nn.Module):
    """The package's own layers."""

    def __init__(self, task: Task, gradient: Any = "none") -> None:
        super().__init__()
        torch.manual_seed(1)
        self.fc = layers.Linear(task.inputs, task.neurons, bias=False)
        nn.init.normal_(self.fc.weight, 0.0, 1.2 * (task.inputs * task.density * TC) ** -0.5)
        self.lif = SurrogateLIF(
            task.neurons, TC, beta=task.beta, recurrent=task.recurrent, gradient=gradient,
            time_dim=0, spike_dtype=torch.bool if gradient == "none" else None,
        )  # fmt: skip
        self.readout = layers.Linear(task.neurons, task.classes, bias=False)
        self.leak = LeakyIntegrator(task.classes, TC_READOUT, time_dim=0)

    def forward(self, x: Tensor) -> Tensor:
        self.lif.reset()
        self.leak.reset()
        y: Tensor = self.leak(self.readout(self.lif(self.fc(x))))
        return y

    def weights(self) -> list[nn.Parameter]:
        """The weights of the input, of the recurrence where there is one, and of the readout."""
        inner = [] if self.lif.recurrent is None else [self.lif.recurrent.weight]
        return [self.fc.weight, *inner, self.readout.weight]


def error_of(y: Tensor, target: Tensor) -> Tensor:
    """The gradient of each sample's cross entropy by the outputs, of every step."""
    return y.softmax(-1) - F.one_hot(target, y.shape[-1])


class Forward:
    """A pass without learning."""

    def __init__(self, task: Task) -> None:
        self.net = Network(task)
        self.x, self.target = task.data()

    @torch.no_grad()
    def batch(self) -> None:
        self.net(self.x)

    def weights(self) -> list[nn.Parameter]:
        return self.net.weights()


class ByEProp(Forward):
    """Local rules, called by hand after the pass."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        net, options = self.net, {"time_dim": 0, "carry": False}
        feedback = SymmetricFeedback(net.readout)
        hidden = RuleTrainer(EProp(LR, feedback, tc_readout=TC_READOUT), **options)
        hidden.register_cell("input", Cell(net.fc, net.lif))
        if net.lif.recurrent is not None:
            hidden.register_cell("recurrent", Cell(net.lif.recurrent, net.lif))
        output = RuleTrainer(DeltaRule(LR), **options)
        output.register_cell("output", Cell(net.readout, net.leak))
        self.trainers = (hidden, output)

    @torch.no_grad()
    def batch(self) -> None:
        error = error_of(self.net(self.x), self.target)
        for trainer in self.trainers:
            trainer(error=error)
        for trainer in self.trainers:
            trainer.update()


class ByLoop(Forward):
    """The equations as they stand: traces for each sample and synapse, step by step."""

    @torch.no_grad()
    def batch(self) -> None:
        net, lif = self.net, self.net.lif
        seen: list[Tensor] = []
        hook = lif.register_forward_hook(lambda *args: seen.append(args[2]))
        error = error_of(net(self.x), self.target)
        hook.remove()
        spikes, kappa = seen[0].float(), decay_factor(TC_READOUT)
        assert lif.membrane is not None
        assert lif.threshold is not None
        psi = lif.surrogate.derivative(lif.membrane - lif.threshold)
        signal = error @ net.readout.weight
        before = torch.cat([torch.zeros_like(spikes[:1]), spikes[:-1]])
        inputs = [self.x, before] if lif.recurrent is not None else [self.x]
        changes = [self.summed(raster, psi, signal, kappa) for raster in inputs]
        low_pass, change = torch.zeros_like(spikes[0]), torch.zeros_like(net.readout.weight)
        for now, z in zip(error, spikes, strict=True):
            low_pass = kappa * low_pass + z
            change += now.T @ low_pass
        for weight, total in zip(self.weights(), [*changes, change], strict=True):
            weight -= LR / spikes.shape[1] * total

    def summed(self, raster: Tensor, psi: Tensor, signal: Tensor, kappa: float) -> Tensor:
        lif = self.net.lif
        alpha, beta, rho = lif.decay, lif.beta, lif.decay_adaptation
        shape = (raster.shape[1], psi.shape[2], raster.shape[2])
        filtered, adapted, total = (torch.zeros(shape) for _ in range(3))
        trace = torch.zeros(raster.shape[1:])
        for x, p, now in zip(raster, psi, signal, strict=True):
            trace = alpha * trace + x
            p, eps = p.unsqueeze(-1), trace.unsqueeze(1)
            filtered = kappa * filtered + p * (eps - beta * adapted if beta else eps)
            if beta:
                adapted = p * eps + (rho - beta * p) * adapted
            total += now.unsqueeze(-1) * filtered
        return total.sum(0)


class ByBPTT(Forward):
    """Autograd through time, and plain gradient descent."""

    def __init__(self, task: Task) -> None:
        self.net: Any = self.network(task)
        x, self.target = task.data()
        self.x = x.float()
        self.optimizer = torch.optim.SGD(self.weights(), LR)

    def network(self, task: Task) -> nn.Module:
        return Network(task, gradient="time")

    def batch(self) -> None:
        y = self.net(self.x)
        loss = F.cross_entropy(y.flatten(0, 1), self.target.repeat(len(y)), reduction="sum")
        (loss / len(self.target)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class SnnTorchNetwork(nn.Module):
    """The same layers by snnTorch."""

    def __init__(self, task: Task) -> None:
        super().__init__()
        import snntorch
        from snntorch import surrogate

        options = {
            "beta": decay_factor(TC), "reset_mechanism": "subtract",
            "spike_grad": surrogate.fast_sigmoid(),
        }  # fmt: skip
        self.fc = nn.Linear(task.inputs, task.neurons, bias=False)
        self.recurrent = task.recurrent
        self.lif: Any = (
            snntorch.RLeaky(linear_features=task.neurons, **options)
            if task.recurrent
            else snntorch.Leaky(**options)
        )
        self.readout = nn.Linear(task.neurons, task.classes, bias=False)
        self.leak: Any = snntorch.Leaky(decay_factor(TC_READOUT), reset_mechanism="none")

    def weights(self) -> list[nn.Parameter]:
        inner = [self.lif.recurrent.weight] if self.recurrent else []
        return [self.fc.weight, *inner, self.readout.weight]

    def forward(self, x: Tensor) -> Tensor:
        state = self.lif.reset_mem()
        state = state if self.recurrent else (state,)
        membrane, outputs = self.leak.reset_mem(), []
        for current in self.fc(x):
            z, *state = self.lif(current, *state)
            _, membrane = self.leak(self.readout(z), membrane)
            outputs.append(membrane)
        return torch.stack(outputs)


class BySnnTorch(ByBPTT):
    """snnTorch's neurons, whose own way is BPTT."""

    def network(self, task: Task) -> nn.Module:
        return SnnTorchNetwork(task)


LEARNERS: dict[str, Callable[[Task], Forward]] = {
    "a pass without learning": Forward,
    "e-prop": ByEProp,
    "BPTT, the same layers": ByBPTT,
    "BPTT, snnTorch's layers": BySnnTorch,
    "e-prop, a loop with a trace for each synapse": ByLoop,
}
