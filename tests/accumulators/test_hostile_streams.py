"""States from elsewhere that lack something; what spoils them is in `test_hostile_states`."""

import pytest
import torch
from streams import CASES, stream
from torch import nn

from lightning_accum.accumulators import Except, Mean, Scalar, Sum, Window
from lightning_accum.metrics import FiringStatistics, MaxRateClassifier, UpdateStatistics

MAKE = {
    **{name: case.make for name, case in CASES.items()},
    "MaxRateClassifier": lambda: MaxRateClassifier(2, 3),
    "UpdateStatistics": UpdateStatistics,
    "FiringStatistics": FiringStatistics,
}
VALUES = [value.float() for value in stream(6, (2,))]


def fed(metric, count=4):
    for value in VALUES[:count]:
        feed(metric, value)
    return metric


def feed(metric, value):
    if isinstance(metric, MaxRateClassifier):
        metric.update(value.abs().expand(3, 2), torch.tensor([0, 1, 2]))
    elif isinstance(metric, UpdateStatistics):
        metric.update(value, value * 2)
    elif isinstance(metric, FiringStatistics):
        metric.update((value > 0).expand(2, 3, 2))
    else:
        metric.update(value)


@pytest.mark.parametrize("name", [name for name in MAKE if name != "Except"])
def test_a_state_that_lacks_a_part_is_refused(name):
    state = fed(MAKE[name]()).state_dict()
    saved = state.get("_extra_state", state)
    for key in saved:
        part = {k: v for k, v in saved.items() if k != key}
        part = {"_extra_state": part} if saved is not state else part
        with pytest.raises(RuntimeError, match=f"should have all of its states.*{key}"):
            MAKE[name]().load_state_dict(part)


def test_a_refusal_names_the_metric_within_its_model():
    model = nn.ModuleDict({"loss": Mean(), "all": Except(Window(2), begin=1, period=3)})
    saved = fed(Mean()).state_dict()
    saved["_extra_state"]["updates"] = -3
    state = {f"loss.{key}": value for key, value in saved.items()}
    with pytest.raises(
        RuntimeError, match=r"`loss`: state `updates` should be a count. Found `-3`"
    ):
        model.load_state_dict(state, strict=False)
    with pytest.raises(RuntimeError, match=r"`all`: its state should have a `position` below.* 3"):
        model.load_state_dict({"all._extra_state": {"position": 3, "updates": 0}}, strict=False)
    assert (model["loss"].update_count, model["all"].position) == (0, 0)


def test_a_state_of_nothing_takes_any_shape_afterwards():
    total, other = Sum(), Sum()
    total.load_state_dict(other.state_dict())
    assert total(torch.ones(3)).shape == (3,)


@pytest.mark.parametrize("step", [-1, 1.5, None, "1", True])
def test_the_step_of_a_writer_is_a_count(step):
    scalar = Scalar(None, "loss")
    with pytest.raises(
        ValueError, match=r"`step` of `Scalar\('loss'\)` should be a non-negative integer"
    ):
        scalar.load_state_dict({"_extra_state": {"step": step}})
    assert scalar.step == 0
