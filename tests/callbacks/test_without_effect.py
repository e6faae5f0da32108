"""What a user sets, and what would have no effect, is told."""

from __future__ import annotations

import copy
import logging
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import RULE, Net, callback, clean, loader, trainer
from torch import nn

from lightning_accum import BCM, STDP, CellSpec, Hebb, attach_updater
from lightning_accum.callbacks import (
    AverageBuffers,
    CellTrainerCallback,
    FabricCellTrainer,
    UpdateMonitor,
    UpdatePictures,
)
from lightning_accum.functional import bound_power
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.updates import Clamp


def fabric() -> FabricCellTrainer:
    return FabricCellTrainer(STDP(**RULE, time_dim=0), {"enc": CellSpec("fc", "lif")})


@pytest.mark.parametrize(
    ("make", "name", "remedy"),
    [
        (callback, "lr", "pass a schedule as `lr_scheduler`, or make a new one with `lr="),
        (callback, "apply_every_n_batches", "make a new one with `apply_every_n_batches="),
        (callback, "carry", "make a new one with `carry="),
        (callback, "cell_trainer", "make a new one with `cell_trainer="),
        (callback, "name", "make a new one with `name="),
        (callback, "log", "make a new one with `log="),
        (fabric, "carry", "make a new one with `carry="),
    ],
)
def test_an_argument_assigned_afterwards(make: Any, name: str, remedy: str) -> None:
    for learner in (made := make(), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        before = dict(vars(learner))
        with pytest.raises(AttributeError, match=f"Found `{name}`.*no effect: .*{remedy}"):
            setattr(learner, name, 3)
        assert vars(learner) == before


@pytest.mark.parametrize(
    "make", [callback, fabric, UpdateMonitor, UpdatePictures, lambda: AverageBuffers(["theta"])]
)
def test_any_other_attribute_may_be_set(make: Any) -> None:
    learner = make()
    learner.tag = "first"
    for copied in (learner, copy.deepcopy(learner), pickle.loads(pickle.dumps(learner))):
        assert copied.tag == "first"


def test_a_subclass_may_have_attributes_of_its_own() -> None:
    class Counting(CellTrainerCallback):
        def __init__(self) -> None:
            super().__init__(STDP(**RULE, time_dim=0), {"enc": CellSpec("fc", "lif")})
            self.counted = 0

    learner = Counting()
    learner.counted += 1
    with pytest.raises(AttributeError, match="Found `carry`"):
        learner.carry = True  # type: ignore[attr-defined]


class Own(Net):
    """Has an optimizer of its own, which Lightning steps."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = True

    def configure_optimizers(self) -> Any:
        return UpdateOptimizer(self.fc.parameters())


def test_lr_beside_the_optimizer_of_the_module(tmp_path: Path) -> None:
    net = Own()
    with pytest.raises(ValueError, match=r"`lr` should be 1.0 .* Found `lr = 0.01`: pass it to"):
        trainer(tmp_path, callback(lr=0.01)).fit(net, loader(1))
    assert clean(net)


def told(tmp_path: Path, every: int, steps: int, batches: int = 7) -> list[str]:
    """Returns what is said if the module's optimizer steps after each ``steps`` batches."""
    learner = callback(apply_every_n_batches=every)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fits = trainer(tmp_path, learner, accumulate_grad_batches=steps, max_epochs=2)
        fits.fit(Own(), loader(batches))
    return [str(w.message) for w in caught if "apply_every_n_batches" in str(w.message)]


@pytest.mark.parametrize(("every", "steps"), [(3, 1), (2, 3)])
def test_another_number_of_batches_than_between_steps(
    every: int, steps: int, tmp_path: Path
) -> None:
    (message,) = told(tmp_path, every, steps)
    assert f"Found {every}, and {steps} from one step to the next" in message


@pytest.mark.parametrize("every", [1, 2, 3, 8])
def test_the_number_of_batches_between_steps(every: int, tmp_path: Path) -> None:
    assert not told(tmp_path, every, every)


class Replacing(Net):
    """Makes its connection anew when it is set up."""

    limits = "none"

    def renew(self) -> None:
        self.old = self.fc if self.limits == "kept" else None
        self.fc = Net().fc
        if self.limits == "again":
            attach_updater(self.fc, "weight").register_constraint(Clamp(0.0, 1.0))


class InSetup(Replacing):
    def setup(self, stage: str) -> None:
        self.renew()


class InConfigureModel(Replacing):
    def configure_model(self) -> None:
        self.renew()


@pytest.mark.parametrize("kind", [InSetup, InConfigureModel, Net])
@pytest.mark.parametrize("limits", ["none", "again", "kept"])
@pytest.mark.parametrize("bound", [False, True])
def test_constraints_of_a_connection_that_is_replaced(
    kind: type[Net], limits: str, bound: bool, tmp_path: Path
) -> None:
    net = kind()
    net.limits = limits  # type: ignore[assignment]
    updater = attach_updater(net.fc, "weight")
    if bound:
        updater.weight.fullbound(bound_power, 1.0, 0.0)
    else:
        updater.register_constraint(Clamp(0.0, 1.0))
    del updater
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trainer(tmp_path, callback()).fit(net, loader(2))
    told = [w for w in caught if "has replaced by one without any" in str(w.message)]
    assert bool(told) == (kind is not Net and limits == "none")


@pytest.mark.parametrize("rule", [BCM, Hebb])
@pytest.mark.parametrize("end", [nn.Identity, nn.ReLU])
def test_negative_outputs_under_bcm(
    rule: Any, end: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net()
    nn.init.normal_(net.fc.weight, generator=torch.Generator().manual_seed(0))
    net.lif = Resettable(end())  # type: ignore[assignment]
    with caplog.at_level(logging.INFO):
        trainer(tmp_path, callback(rule(1e-4, time_dim=0))).fit(net, loader(4))
    told = "% of the outputs of `enc` are negative, and the rule assumes none" in caplog.text
    assert told == (rule is BCM and end is nn.Identity)


class Resettable(nn.Sequential):
    """Has a state of no kind."""

    def reset(self) -> None:
        pass
