"""A loop without `release()` is checked when its learner is deleted or the program ends."""

from __future__ import annotations

import gc
import logging
import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn

from lightning_accum import Cell, CellSpec, Hebb
from lightning_accum.callbacks import FabricCellTrainer

CELLS = {"enc": CellSpec("0", "1")}
NOTHING = "Cell `enc` should record activity to learn from. Found none in 3 training batches."

SCRIPT = """
import sys, torch
from torch import nn
from lightning_accum import CellSpec, Hebb
from lightning_accum.callbacks import FabricCellTrainer
learns = "learns" in sys.argv
model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Sigmoid())
learner = FabricCellTrainer(Hebb(0.1), {"enc": CellSpec("0", "1")})
learner.setup(model)
for x in torch.rand(3, 8, 2):
    with learner.batch():
        model(x) if learns else model[0].forward(x)
    learner.step()
if "fails" in sys.argv:
    raise ZeroDivisionError
"""


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 1, bias=False), nn.Sigmoid())


def loop(model: nn.Sequential, learns: bool, scale: float = 1.0) -> FabricCellTrainer:
    """A learner after three batches, which only its caller holds."""
    learner = FabricCellTrainer(Hebb(0.1), CELLS)
    learner.setup(model)
    for x in torch.rand(3, 8, 2, generator=torch.Generator().manual_seed(0)) * scale:
        with learner.batch():
            model(x) if learns else model[0].forward(x)
        learner.step()
    return learner


@pytest.mark.parametrize(
    ("args", "told"),
    [((), 1), (("fails",), 0), (("learns",), 0)],
)
def test_at_the_end_of_a_script(args: tuple[str, ...], told: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT, *args], capture_output=True, text=True, timeout=120
    )
    assert run.stderr.count(NOTHING) == told
    assert run.stderr.count("ZeroDivisionError") == ("fails" in args)
    assert "should have changed" not in run.stderr  # nor does the rule say it again
    assert "Exception ignored" not in run.stderr


@pytest.mark.parametrize("learns", [False, True])
def test_when_the_learner_is_deleted(learns: bool) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model = network()
        learner = loop(model, learns)
        del learner
        gc.collect()
    assert [str(each.message)[: len(NOTHING)] for each in found] == [NOTHING] * (not learns)


def test_when_the_model_is_deleted_with_it() -> None:
    def script() -> None:
        loop(network(), learns=False)

    with pytest.warns(RuntimeWarning, match="Found none in 3 training batches"):
        script()


def test_updates_that_were_dropped() -> None:
    learner = loop(network(), learns=True, scale=float("inf"))
    with pytest.warns(RuntimeWarning, match="Found NaN or Inf in 3 updates of `weight`"):
        learner.release()


def test_minor_findings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    model = network()
    rule = Hebb(0.0)
    rule.register_cell("enc", Cell(model[0], model[1]))
    learner = FabricCellTrainer(rule)
    learner.setup(model)
    for x in torch.rand(3, 8, 2):
        with learner.batch():
            model(x)
        learner.step()
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        learner.release()
    assert any("`enc.weight` is unchanged" in text for text in caplog.messages)


@pytest.mark.parametrize("released", [True, False])
@pytest.mark.parametrize("call", ["step", "updates_as_gradients"])
def test_a_few_steps_without_batches(call: str, released: bool) -> None:
    model, learner = network(), FabricCellTrainer(Hebb(0.1), CELLS)
    learner.setup(model)
    for x in torch.rand(3, 8, 2):
        model(x)
        getattr(learner, call)()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        if released:
            learner.release()
        del learner
        gc.collect()
    (text,) = [str(each.message) for each in found]
    assert "Found 3 steps without one: run the module inside `with learner.batch():`" in text


def test_many_steps_without_batches_are_told_of_once() -> None:
    model, learner = network(), FabricCellTrainer(Hebb(0.1), CELLS)
    learner.setup(model)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(9):
            learner.step()
        learner.release()
    assert ["Found 8 steps without one" in str(each.message) for each in found] == [True]
    assert found[0].filename == __file__


def test_a_module_that_runs_before_the_batch() -> None:
    model, learner = network(), FabricCellTrainer(Hebb(0.1), CELLS)
    learner.setup(model)
    for x in torch.rand(3, 8, 2):
        model(x)
        with learner.batch():
            pass
        learner.step()
    with pytest.warns(
        RuntimeWarning, match=r"not called inside `with learner.batch\(\):`, the only"
    ):
        learner.release()


@pytest.mark.parametrize("whole", [False, True])
def test_what_stays_in_evaluation_mode(whole: bool, caplog: pytest.LogCaptureFixture) -> None:
    model, rule = network(), Hebb(0.1)
    learner = FabricCellTrainer(rule, CELLS)
    learner.setup(model)
    for i, x in enumerate(torch.rand(40, 8, 2)):
        with learner.batch():
            model(x)
        learner.step()
        if i == 9:
            (model if whole else rule).eval()
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        learner.release()
    why = "Its modules are" if whole else "The rule is"
    found = f"`enc` recorded nothing in the last 30 of 40 training batches. {why} in evaluation"
    assert any(found in text for text in caplog.messages)


def test_steps_that_are_scaled_by_zero() -> None:
    learner = FabricCellTrainer(Hebb(0.1), CELLS)
    model = network()
    learner.setup(model)
    for x in torch.rand(10, 8, 2):
        with learner.batch():
            model(x)
        learner.step(scale=0.0)
    with pytest.warns(RuntimeWarning, match="Each change was multiplied by 0.*look at `scale`"):
        learner.release()


def test_a_scale_that_is_meant_as_a_step_size(caplog: pytest.LogCaptureFixture) -> None:
    learner, model = FabricCellTrainer(Hebb(0.1), CELLS), network()
    learner.setup(model)
    for x in torch.rand(10, 8, 2):
        with learner.batch():
            model(x)
        learner.step(scale=1e-4)
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        learner.release()
    (text,) = caplog.messages
    assert "with `scale = 0.0001` of `step()`: it is a factor of the rule's rates" in text
