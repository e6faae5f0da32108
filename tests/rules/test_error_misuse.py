"""Mistakes with rules that learn from an error, which are told with their remedy."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum import Cell, CellSpec, get_updater
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF, AdaptiveLIF, SurrogateLIF
from lightning_accum.rules import Feedback, LearnedFeedback, RandomFeedback, SymmetricFeedback

STEPS, BATCH, INPUTS, NEURONS, CLASSES = 7, 3, 4, 5, 2


def shown(rule: la.Rule, neuron: nn.Module | None = None) -> Cell:
    """A cell that has been shown a sequence."""
    torch.manual_seed(0)
    cell = Cell(nn.Linear(INPUTS, NEURONS), neuron or SurrogateLIF(NEURONS, time_dim=0))
    nn.init.uniform_(cell.connection.weight)
    rule.register_cell("hidden", cell)
    cell.neuron(cell.connection(torch.ones(STEPS, BATCH, INPUTS)))
    return cell


def eprop(feedback: Feedback | None = None, **options: Any) -> la.EProp:
    return la.EProp(0.1, feedback, time_dim=0, **options)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_an_error_of_nan_is_never_applied(value: float) -> None:
    rule = eprop()
    cell = shown(rule)
    before = cell.connection.weight.detach().clone()
    rule(error=torch.full((STEPS, BATCH, NEURONS), value))
    with pytest.raises(la.NonFiniteUpdateError, match=r"cell hidden.* holds NaN or Inf\. Nothing"):
        rule.update()
    assert torch.equal(cell.connection.weight, before)


WRONG = {
    "none": (None, RandomFeedback(CLASSES, NEURONS), r"Found NoneType: call the rule as `rule\("),
    "nothing for neurons": (None, None, r"\[T, B, 5\] or \[B, 5\].* Found NoneType"),
    "a number": (0.5, None, "Found float: call the rule"),
    "swapped": (
        torch.ones(BATCH, STEPS, CLASSES), RandomFeedback(CLASSES, NEURONS),
        r"Found \[3, 7, 2\]: time is its first dimension, so call `error.transpose\(0, 1\)`",
    ),
    "too few steps": (torch.ones(STEPS - 1, BATCH, NEURONS), None, r"with 7 steps .*\[6, 3, 5\]"),
    "another batch": (torch.ones(BATCH + 1, NEURONS), None, r"a batch of 3\. Found \[4, 5\]"),
    "reduced": (torch.ones(()), None, r"Found \[\]"),
    "of another layer": (
        torch.ones(BATCH, CLASSES), RandomFeedback(CLASSES, NEURONS + 1),
        r"`feedback` of `EProp` should give a signal to each of the 5 neurons\. Found 6: make it",
    ),
    "other classes": (
        torch.ones(BATCH, CLASSES + 1), RandomFeedback(CLASSES, NEURONS),
        r"`error` should have shape \[\.\.\., 2\].* of `RandomFeedback`\. Found \[1, 3\]",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("error", "feedback", "message"), WRONG.values(), ids=WRONG)
def test_an_error_that_does_not_fit_changes_nothing(
    error: Any, feedback: Feedback | None, message: str
) -> None:
    rule = eprop(feedback)
    cell = shown(rule)
    with pytest.raises(ValueError, match=message):
        rule(**({} if error is None else {"error": error}))
    assert get_updater(cell.connection).weight.empty
    good = torch.ones(BATCH, NEURONS if feedback is None else CLASSES)
    if message.startswith("`feedback`"):
        return
    rule(error=good)  # the window is still there
    assert not get_updater(cell.connection).weight.empty


def test_a_complex_error_is_refused() -> None:
    rule = eprop()
    cell = shown(rule)
    with pytest.raises(TypeError, match=r"`error` of `EProp` should be real\. Found torch.complex"):
        rule(error=torch.ones(BATCH, NEURONS) * 1j)
    assert get_updater(cell.connection).weight.empty


class Oscillator(nn.Module):
    """Neurons whose potential is complex."""

    membrane = None

    def forward(self, x: Tensor) -> Tensor:
        self.membrane = torch.complex(x, x)
        return (x > 0.5).to(x.dtype)


COMPLEX = {
    "Clopath": lambda: la.Clopath(1e-3, 1e-3, 0.1, 0.6, time_dim=0),
    "EProp": lambda: eprop(tc_mem=10.0, threshold=0.5),
    "EProp, threshold": lambda: eprop(tc_mem=10.0, membrane=lambda x: x, threshold="membrane"),
}


@pytest.mark.parametrize("make", COMPLEX.values(), ids=COMPLEX)
def test_complex_potentials_are_refused(make: Any) -> None:
    rule = make()
    cell = shown(rule, Oscillator())
    inputs = {"error": torch.ones(BATCH, NEURONS)} if isinstance(rule, la.EProp) else {}
    name = "threshold" if rule.defaults.membrane != "membrane" else "membrane"
    found = rf"The {name} of a neuron should be real\. Found torch.complex64: .*`{name}="
    with pytest.raises(TypeError, match=found):
        rule(**inputs)
    assert get_updater(cell.connection).weight.empty


def test_feedback_of_another_readout_is_refused() -> None:
    readout = nn.Linear(NEURONS + 1, CLASSES)
    rule = eprop(SymmetricFeedback(readout))
    cell = shown(rule)
    with pytest.raises(ValueError, match=r"to each of the 5 neurons\. Found 6: make it for this"):
        rule(error=torch.ones(BATCH, CLASSES))
    assert get_updater(cell.connection).weight.empty


@pytest.mark.parametrize("kind", [LIF, AdaptiveLIF])
@pytest.mark.parametrize("make", [la.EProp, la.OTTT])
def test_neurons_with_a_hard_reset_keep_no_potential(make: Any, kind: Any) -> None:
    rule = make(0.1, time_dim=0)
    message = rf"a `{kind.__name__}` keeps none under `membrane`: take a `lightning_accum.nn.Surrog"
    with pytest.raises(ValueError, match=message):
        shown(rule, kind(NEURONS, time_dim=0))
    assert not list(rule.cells)


@pytest.mark.parametrize("make", [la.EProp, la.OTTT])
def test_states_that_are_not_kept_are_missed(make: Any) -> None:
    neuron = SurrogateLIF(NEURONS, gradient="step", time_dim=0, keep_states=False)
    with pytest.raises(ValueError, match=r"take a `.*SurrogateLIF` with `keep_states=True`"):
        shown(make(0.1, time_dim=0), neuron)


@pytest.mark.parametrize(
    "neuron", [LIF(NEURONS, time_dim=0), SurrogateLIF(NEURONS, time_dim=0, keep_states=False)]
)
def test_the_voltage_rule_needs_a_potential(neuron: nn.Module) -> None:
    rule = la.Clopath(1e-3, 1e-3, 0.1, 0.6, time_dim=0)
    with pytest.raises(ValueError, match=r"a membrane for `Clopath` to record.*take a `.*Surrog"):
        shown(rule, neuron)
    assert not list(rule.cells)
    rule = la.Clopath(1e-3, 1e-3, 0.1, 0.6, membrane="voltage")
    rule.register_cell("enc", la.Cell(nn.Linear(4, NEURONS), LIF(NEURONS)))


@pytest.mark.parametrize("gradient", ["none", "time"])
def test_ottt_names_the_gradient_that_it_needs(gradient: Any) -> None:
    rule = la.OTTT(0.1, time_dim=0)
    message = rf"Found `gradient = '{gradient}'`: make it as `SurrogateLIF\(\.\.\., gradient=\"step"
    with pytest.raises(ValueError, match=message):
        shown(rule, SurrogateLIF(NEURONS, gradient=gradient, time_dim=0))
    assert not list(rule.cells)


def test_ottt_without_a_backward_pass_names_it() -> None:
    rule = la.OTTT(0.1, time_dim=0)
    cell = shown(rule, SurrogateLIF(NEURONS, gradient="step", time_dim=0))
    with pytest.raises(
        ValueError, match=r"no backward pass has reached .*: call `backward\(\)` on"
    ):
        rule()
    assert get_updater(cell.connection).weight.empty


@pytest.mark.parametrize("calls", [0, 1])
def test_ottt_names_calls_without_a_gradient(calls: int) -> None:
    rule = la.OTTT(0.1, time_dim=0)
    cell = Cell(
        nn.Linear(INPUTS, NEURONS).requires_grad_(False),
        SurrogateLIF(NEURONS, gradient="step", time_dim=0),
    )
    rule.register_cell("hidden", cell)
    x = torch.ones(STEPS, BATCH, INPUTS)
    cell.neuron(cell.connection(x))
    for _ in range(calls):
        cell.neuron(cell.connection(x.clone().requires_grad_())).sum().backward()
    message = rf"of the SurrogateLIF did not require grad in 1 of {1 + calls} calls\. Let the"
    with pytest.raises(ValueError, match=message):
        rule()
    assert get_updater(cell.connection).weight.empty


class Model(pl.LightningModule):
    def __init__(self, bias: float = 0.0) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.fc = nn.Linear(INPUTS, NEURONS).requires_grad_(False)
        nn.init.constant_(self.fc.bias, bias)
        self.lif = SurrogateLIF(NEURONS, time_dim=0)
        self.readout = nn.Linear(NEURONS, CLASSES).requires_grad_(False)

    def training_step(self, batch: Tensor, batch_idx: int) -> dict[str, Tensor]:
        self.lif.reset()
        return {"error": self.readout(self.lif(self.fc(batch)))}

    def configure_optimizers(self) -> None:
        return None


def fit(model: Model, feedback: Feedback) -> None:
    rule = la.EProp(0.1, feedback, time_dim=0)
    learns = CellTrainerCallback(
        rule, cells={"hidden": CellSpec("fc", "lif")}, input_keys=("error",)
    )
    trainer = pl.Trainer(
        max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[learns],
    )  # fmt: skip
    data = [torch.ones(STEPS, BATCH, INPUTS)] * 3
    trainer.fit(model, DataLoader(data, batch_size=None))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "feedback",
    [SymmetricFeedback("readouts"), LearnedFeedback("readouts", CLASSES, NEURONS)],
    ids=["symmetric", "learned"],
)
def test_the_path_of_a_readout_that_does_not_exist(feedback: Feedback) -> None:
    model = Model()
    message = r"`readout` of `\w+` should be the path of a module of the model.* Found `readouts`"
    with pytest.raises(AttributeError, match=message):
        fit(model, feedback)
    assert not model.fc._forward_hooks
    with pytest.raises(TypeError, match=r"`readout` should be an `nn.Linear`.* Found `SurrogateL"):
        fit(model, SymmetricFeedback("lif"))


def test_a_readout_that_was_never_looked_up() -> None:
    rule = eprop(SymmetricFeedback("readout"))
    cell = shown(rule)
    with pytest.raises(RuntimeError, match="should have a readout at `readout`"):
        rule(error=torch.ones(BATCH, CLASSES))
    assert get_updater(cell.connection).weight.empty


class Late(nn.Module):
    """A neuron that has its potential only once it was called, unless it is told otherwise."""

    def __init__(self, early: bool = False) -> None:
        super().__init__()
        if early:
            self.membrane = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.membrane = x.cumsum(0)
        return (self.membrane > 1.0).float()


def test_a_potential_that_only_forward_sets_is_missed() -> None:
    message = r"if `forward` sets `self.membrane`, begin with `self.membrane = None` in its `__init"
    with pytest.raises(ValueError, match=message):
        shown(la.EProp(0.1, tc_mem=20.0, threshold=1.0, time_dim=0), Late())
    rule = la.EProp(0.1, tc_mem=20.0, threshold=1.0, time_dim=0)
    cell = shown(rule, Late(early=True))
    rule(error=torch.ones(BATCH, NEURONS))
    assert not get_updater(cell.connection).weight.empty
