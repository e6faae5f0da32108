"""States from elsewhere: what is refused changes nothing, and what is taken works."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import CASES, stream
from torch import nn
from torch.testing import assert_close

from lightning_accum.accumulators import Except, Mean, Scalar, Sum, Window
from lightning_accum.metrics import FiringStatistics, MaxRateClassifier, UpdateStatistics

MAKE = {
    **{name: case.make for name, case in CASES.items()},
    "MaxRateClassifier": lambda: MaxRateClassifier(2, 3),
    "UpdateStatistics": UpdateStatistics,
    "FiringStatistics": FiringStatistics,
}
VALUES = [value.float() for value in stream(6, (2,))]
HOSTILE = {
    "none": lambda good: None,
    "text": lambda good: "text",
    "number": lambda good: 3,
    "nan": lambda good: math.nan,
    "list": lambda good: [good],
    "dictionary": lambda good: {},
    "object": lambda good: object(),
    "integers": lambda good: torch.arange(2),
    "booleans": lambda good: torch.tensor([True, False]),
    "half": lambda good: torch.ones(2, dtype=torch.float16),
    "complex": lambda good: torch.ones(2, dtype=torch.complex64),
    "longer": lambda good: torch.ones(3),
    "matrix": lambda good: torch.ones(5, 2),
    "scalar": lambda good: torch.tensor(1.0),
    "negative": lambda good: torch.tensor(-1),
    "empty": lambda good: torch.empty(0),
    "quantity": lambda good: good.numel() if isinstance(good, torch.Tensor) else len([good]),
    "doubled": lambda good: {**good, "values": 2} if isinstance(good, dict) else [good, good],
    "values": lambda good: {"values": [torch.ones(2), "text", torch.ones(3)], "position": -1},
    "position": lambda good: {"position": 10**9, "values": [1, 2]},
}


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


def flat(found):
    if isinstance(found, dict):
        return list(found.values())
    return found if isinstance(found, list) else [found]


@pytest.mark.filterwarnings(
    "ignore:.Variance.* should have more than 1 values"
)  # a count of 1 is one
@pytest.mark.parametrize("name", MAKE)
@settings(max_examples=60)
@given(data=st.data())
def test_a_state_is_taken_whole_or_not_at_all(name, data):
    metric, saved = fed(MAKE[name](), 3), dict(fed(MAKE[name]()).state_dict())
    spoiled = saved
    if "_extra_state" in saved and data.draw(st.sampled_from([True, True, True, False])):
        spoiled = saved["_extra_state"]
    key = data.draw(st.sampled_from(sorted(spoiled)))
    lost = data.draw(st.booleans())
    good = spoiled.pop(key)
    if not lost:
        spoiled[key] = HOSTILE[data.draw(st.sampled_from(sorted(HOSTILE)))](good)
    before = [torch.as_tensor(value).clone() for value in flat(metric.compute())]
    try:
        metric.load_state_dict(saved)
    except RuntimeError as error:
        assert "in loading state_dict" in str(error)  # noqa: PT017
        if name != "Except":  # of which the accumulator is a module of its own
            after = [torch.as_tensor(value) for value in flat(metric.compute())]
            assert_close(after, before, rtol=0, atol=0, equal_nan=True)
    else:
        metric.compute()
    for shape in (VALUES[4], VALUES[5]):
        try:
            feed(metric, shape)
        except ValueError as error:  # noqa: PERF203
            # Of another shape than what was loaded.
            assert "should have" in str(error)  # noqa: PT017
    metric.compute()
    metric.reset()
    fresh = MAKE[name]()
    for value in VALUES[:2]:
        feed(metric, value)
        feed(fresh, value)
    assert_close(flat(metric.compute()), flat(fresh.compute()))


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
