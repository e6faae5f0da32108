"""What is wrong with a network that learns from an error is told when its fit begins."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.utils.data import DataLoader, TensorDataset

import lightning_accum as la
from lightning_accum import CellSpec
from lightning_accum.callbacks import CellTrainerCallback, FabricCellTrainer
from lightning_accum.nn import LIF, LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import Feedback, LearnedFeedback, RandomFeedback, SymmetricFeedback

STEPS, BATCH, INPUTS, NEURONS, CLASSES = 6, 4, 5, 8, 3
BOTH = ("weight", "bias")
INPUT = CellSpec("fc", "lif", BOTH, {"graded_input": True})
CELLS = {"input": INPUT, "recurrent": CellSpec("lif.recurrent", "lif")}


class Net(pl.LightningModule):
    """Learns by e-prop and the delta rule, or its readout by an optimizer."""

    def __init__(self, optimizer: str = "", **leak: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.optimizer = optimizer
        self.automatic_optimization = bool(optimizer)
        self.fc, self.readout = nn.Linear(INPUTS, NEURONS), nn.Linear(NEURONS, CLASSES)
        nn.init.uniform_(self.fc.weight, 0.0, 1.0)
        self.lif = SurrogateLIF(NEURONS, recurrent=True, time_dim=0)
        self.leak = LeakyIntegrator(CLASSES, **{"tc_mem": 20.0, "time_dim": 0, **leak})

    def training_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        x, labels = batch
        self.lif.reset(), self.leak.reset()
        y = self.leak(self.readout(self.lif(self.fc(x.expand(STEPS, -1, -1))))).mean(0)
        error = (y.softmax(-1) - one_hot(labels, CLASSES)) / STEPS
        return {"error": error, "loss": cross_entropy(y, labels)}

    def configure_optimizers(self) -> Any:
        if self.optimizer:
            return torch.optim.SGD(self.get_submodule(self.optimizer).parameters(), 0.01)
        return None


def eprop(
    cells: Any = None, feedback: Feedback | None = None, tc_readout: float | None = 20.0
) -> CellTrainerCallback:
    feedback = SymmetricFeedback("readout") if feedback is None else feedback
    rule = la.EProp(0.01, feedback, tc_readout=tc_readout, time_dim=0)
    return CellTrainerCallback(rule, cells or CELLS, input_keys=("error",))


def delta(params: tuple[str, ...] = BOTH) -> CellTrainerCallback:
    rule = la.DeltaRule(0.01, params=params, time_dim=0)
    cells = {"readout": CellSpec("readout", "leak")}
    return CellTrainerCallback(rule, cells, input_keys=("error",))


def told(model: pl.LightningModule, *callbacks: pl.Callback, epochs: int = 1) -> list[str]:
    """The warnings of a fit that are this package's."""
    generator = torch.Generator().manual_seed(0)
    data = TensorDataset(torch.rand(12, INPUTS, generator=generator), torch.arange(12) % CLASSES)
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks),
    )  # fmt: skip
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        trainer.fit(model, DataLoader(data, BATCH))
    return [str(w.message) for w in found if "should" in str(w.message)]


def untrained(found: list[str]) -> str:
    """The names of the only warning, which is of parameters that nothing trains."""
    (only,) = found
    assert "should be trained by a cell or an optimizer" in only
    return only.split("neither for ")[1].split(": ")[0]


def test_a_network_that_learns_as_a_whole() -> None:
    assert not told(Net(), eprop(), delta())
    assert not told(Net("readout"), eprop())
    assert not told(Net(), delta(), eprop())


def test_parameters_that_nothing_trains_are_named_once() -> None:
    weight = CellSpec("fc", "lif", ("weight",), {"graded_input": True})
    assert untrained(told(Net(), eprop())) == "`readout.weight`, `readout.bias`"
    assert untrained(told(Net(), eprop({"input": INPUT}), delta())) == "`lif.recurrent.weight`"
    assert untrained(told(Net(), eprop({**CELLS, "input": weight}), delta())) == "`fc.bias`"
    assert untrained(told(Net(), eprop(), delta(("weight",)))) == "`readout.bias`"
    assert untrained(told(Net("readout"), eprop({"input": INPUT}))) == "`lif.recurrent.weight`"
    one, other = eprop({"input": INPUT}), eprop({"recurrent": CELLS["recurrent"]})
    assert untrained(told(Net(), one, other)) == "`readout.weight`, `readout.bias`"


def test_parameters_that_are_meant_to_stay() -> None:
    frozen = Net()
    frozen.readout.requires_grad_(False)
    assert not told(frozen, eprop())
    rests = Net()
    rests.aside = nn.Linear(2, 2).eval()
    assert not told(rests, eprop(), delta())
    assert not told(Net(), delta())  # a fixed reservoir, whose readout learns


def test_a_rule_that_is_called_by_hand_trains_too() -> None:
    model, rule = Net(), la.DeltaRule(0.01, params=BOTH, time_dim=0)
    rule.register_cell("readout", la.Cell(model.readout, model.leak))
    rule.eval()
    assert not told(model, eprop())


@pytest.mark.parametrize("copied", [False, True])
def test_feedback_of_a_readout_outside_of_the_model(copied: bool) -> None:
    other = Net()
    model = copy.deepcopy(other) if copied else Net()
    for feedback in (
        SymmetricFeedback(other.readout),
        LearnedFeedback(other.readout, CLASSES, NEURONS),
    ):
        with pytest.raises(ValueError, match=r"a module of the model that is trained, a `Net`"):
            told(model, eprop(feedback=feedback), delta())
        assert not model.fc._forward_pre_hooks
    assert not told(other, eprop(feedback=SymmetricFeedback(other.readout)), delta())


@pytest.mark.parametrize("frozen", [False, True])
def test_learned_feedback_of_a_readout_that_nothing_trains(frozen: bool) -> None:
    model, feedback = Net(), LearnedFeedback("readout", CLASSES, NEURONS)
    model.readout.requires_grad_(not frozen)
    found = told(model, eprop(feedback=feedback))
    assert "The readout at `readout` of `LearnedFeedback` should be trained" in found[0]
    assert len(found) == 1 if frozen else untrained(found[1:])
    for optimizer, more in (("readout", []), ("", [delta()])):
        feedback = LearnedFeedback("readout", CLASSES, NEURONS)
        assert not told(Net(optimizer), eprop(feedback=feedback), *more)


@pytest.mark.parametrize(
    "feedback", [SymmetricFeedback("readout"), RandomFeedback(CLASSES, NEURONS)]
)
def test_another_time_constant_than_that_of_the_readout(feedback: Feedback) -> None:
    for mine in (None, 200.0):
        (only,) = told(Net(), eprop(feedback=feedback, tc_readout=mine), delta())
        assert "for `input`, `recurrent`, the time constant of the readout `leak`, 20.0 ms" in only
        assert only.endswith(f"Found `tc_readout = {mine}`: give the rule `tc_readout=20.0`.")


def test_a_readout_of_another_size_is_not_compared() -> None:
    model = Net()
    model.aside = LeakyIntegrator(CLASSES + 1, tc_mem=5.0)
    assert not told(model, eprop(), delta())


class Deep(Net):
    """Two layers of neurons and a readout; an optimizer trains the parts that are named."""

    def __init__(self, *trained: str, gradient: Any = "none", neuron: Any = None) -> None:
        super().__init__("readout")
        self.trained = trained
        self.below = nn.Linear(INPUTS, INPUTS)
        self.first = neuron or SurrogateLIF(INPUTS, gradient=gradient, time_dim=0)
        self.lif = SurrogateLIF(NEURONS, gradient=gradient, time_dim=0)

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        x, labels = batch
        self.first.reset()
        spikes = self.first(self.below(x.expand(STEPS, -1, -1)))
        return super().training_step((spikes, labels), batch_idx)

    def configure_optimizers(self) -> Any:
        params = [p for name in self.trained for p in self.get_submodule(name).parameters()]
        return torch.optim.SGD(params, 0.01)


def stdp() -> CellTrainerCallback:
    return CellTrainerCallback(la.STDP(0.01, -0.01, time_dim=0), {"fc": CellSpec("fc", "lif")})


@pytest.mark.parametrize("neuron", [None, LIF(INPUTS, time_dim=0)])
def test_layers_below_neurons_that_pass_no_gradient(neuron: nn.Module | None) -> None:
    (only,) = told(Deep("below", "readout", neuron=neuron), stdp(), epochs=2)
    assert "Found none of `below.weight`, `below.bias`, and neurons that pass no gradient" in only
    assert ": `first`, `lif`." in only or ": `lif`, `first`." in only


class Detached(pl.LightningModule):
    """Detaches the layer above the neurons of a rule from the loss."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc, self.lif = nn.Linear(INPUTS, NEURONS), LIF(NEURONS, v_threshold=1.0, time_dim=0)
        nn.init.uniform_(self.fc.weight, 0.0, 1.0)
        self.hidden, self.readout = nn.Linear(NEURONS, NEURONS), nn.Linear(NEURONS, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        self.lif.reset()
        spikes = (x > 0.3).float().expand(STEPS, -1, -1)
        rates = self.lif(self.fc(spikes)).mean(0)
        return self.readout(self.hidden(rates).detach())

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD([*self.hidden.parameters(), *self.readout.parameters()], 0.01)


def test_neurons_below_a_detached_layer_are_not_the_cause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    assert not told(Detached(), stdp(), epochs=2)
    said = "`SGD` has not changed `hidden.weight`, `hidden.bias` since the fit began: return a loss"
    assert f"{said} that depends on them, not by way of a `detach()`" in caplog.text


def test_neurons_below_a_detached_layer_are_not_the_cause_in_a_loop() -> None:
    model = Detached()
    learner = FabricCellTrainer(la.STDP(0.01, -0.01, time_dim=0), {"fc": CellSpec("fc", "lif")})
    learner.setup(model)
    optimizer = model.configure_optimizers()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(101):
            with learner.batch():
                loss = model.training_step((torch.rand(4, INPUTS), torch.arange(4) % CLASSES), 0)
            loss.backward()
            optimizer.step()
            learner.step()
    (text,) = (str(w.message) for w in found if "outside of cells" in str(w.message))
    assert "Found `hidden.weight`, `hidden.bias` as before: optimize them by a loss that" in text
    assert "lif" not in text


def test_layers_that_get_a_gradient_or_a_rule() -> None:
    assert not told(Deep("readout"), stdp())
    assert not told(Deep("fc", "readout"), stdp())  # its bias belongs to the rule's connection
    found = told(Deep("below", "readout", gradient="step"), stdp())
    assert not found


def test_a_rule_in_evaluation_mode_learns_and_says_so() -> None:
    learner = stdp()
    learner.cell_trainer.eval()
    (only,) = told(Deep("readout"), learner)
    assert "`STDP` should be in training mode before a fit, which sets this mode itself" in only
    assert not learner.cell_trainer.training  # as any fit leaves it
    assert not told(Deep("readout"), learner)


def test_a_rule_that_was_validated_before_its_first_fit() -> None:
    learner = stdp()
    learner.teardown(pl.Trainer(logger=False, accelerator="cpu"), Deep("readout"), "validate")
    assert not told(Deep("readout"), learner)


def test_neurons_whose_potential_is_nan() -> None:
    model = Deep("readout")
    nn.init.constant_(model.fc.bias, torch.nan)
    effect, cause = told(model, stdp())
    assert "never fired, for their membrane potential is NaN: look for NaN in the data" in effect
    assert "Found NaN in `fc.bias`, which no cell trains" in cause
