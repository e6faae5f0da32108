"""What every accumulator has to survive, and what torchmetrics makes of it."""

import copy

import contract_cases
import pytest
import torch
from accumulator_cases import CASES, MERGED, Case, ema, stacked, stream
from torch import nn
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves
from torchmetrics import MetricCollection
from torchmetrics.utilities.exceptions import TorchMetricsUserError
from torchmetrics.wrappers import Running

from lightning_accum._extra_state import unpack
from lightning_accum.accumulators import EMA, Except, Max, Mean, Scalar, Sum, Window

names = pytest.mark.parametrize("name", CASES)
VALUES = stream(7, (2,))


def filled(name, values=VALUES[:4]):
    accumulator = CASES[name].make()
    for value in values:
        accumulator.update(value)
    return accumulator


def result(accumulator):
    return stacked(accumulator.compute())


def expected(name, values):
    return CASES[name].reference(torch.stack(values))


@names
def test_a_state_dict_of_a_model_without_it_loads(name):
    model = nn.Module()
    model.fc = nn.Linear(2, 1)
    state = copy.deepcopy(model.state_dict())
    model.seen = filled(name)
    model.load_state_dict(state)
    assert_close(result(model.seen), expected(name, VALUES[:4]))
    assert any(key.startswith("seen.") for key in model.state_dict())


@names
def test_a_wrapper_that_divides_states_is_refused_with_another_way(name):
    with pytest.raises(ValueError, match=r"`Running` cannot .* take `Window\(length\)`"):
        Running(CASES[name].make())


@names
def test_it_moves_with_its_model_and_keeps_its_dtype(name):
    model = nn.Module()
    model.fc, model.seen = nn.Linear(2, 1), filled(name, [v.float() for v in VALUES[:4]])
    before = result(model.seen)
    for cast in (lambda m: m.to(torch.bfloat16), nn.Module.half, nn.Module.double, nn.Module.float):
        cast(model)
        model.seen._computed = None
        assert result(model.seen).dtype == torch.float32
        assert_close(result(model.seen), before, rtol=0, atol=0)
    model.to("meta")
    states = filter(torch.is_tensor, tree_leaves(model.seen.metric_state))
    assert all(state.is_meta for state in states)


@names
def test_a_value_added_while_synchronised_is_refused(name):
    accumulator = filled(name)
    accumulator.sync(distributed_available=lambda: True, dist_sync_fn=lambda row, group: [row, row])
    with pytest.raises(TorchMetricsUserError, match=r"call `unsync\(\)` first"):
        accumulator(VALUES[4])
    accumulator.unsync()
    accumulator(VALUES[4])
    assert_close(result(accumulator), expected(name, VALUES[:5]))


@pytest.mark.parametrize("name", MERGED)
def test_a_gather_of_ones_own_is_used(name):
    other, states = filled(name, VALUES[4:]), []
    keep = lambda row, group: states.append(row) or [row]  # noqa: E731
    other.sync(distributed_available=lambda: True, dist_sync_fn=keep)
    accumulator = CASES[name].make()
    accumulator.dist_sync_fn = lambda row, group: [row, states[0]]
    accumulator.distributed_available_fn = lambda: True
    for value in VALUES[:4]:
        accumulator.update(value)
    assert_close(result(accumulator), expected(name, VALUES))
    # Its own states are what they were.
    accumulator.distributed_available_fn = lambda: False
    accumulator.update(VALUES[0])
    assert_close(result(accumulator), expected(name, [*VALUES[:4], VALUES[0]]))


APART = {
    **CASES, "fast": Case(lambda: EMA(0.1), lambda x: ema(x, 0.1)),
    "one": Case(lambda: Window(1), lambda x: x[-1]),
    "odd": Case(lambda: Except(Sum(), begin=0, period=2), lambda x: x[1]), "again": CASES["List"],
}  # fmt: skip


@pytest.mark.parametrize("first", [0.0, 1.0])
def test_a_collection_keeps_accumulators_of_equal_states_apart(first):
    # After one update many of these have the same value, and torchmetrics would share it.
    values = torch.tensor([first, 2.0, 4.0], dtype=torch.float64)
    found = MetricCollection({name: case.make() for name, case in APART.items()})
    for value in values:
        found.update(value)
    for name, each in found.compute().items():
        assert_close(stacked(each), APART[name].reference(values))
    found.reset()
    assert found(8.0)["Sum"] == 8.0


def test_a_collection_hands_weights_to_those_that_take_them():
    late = Except(Mean(), begin=0, period=2)
    found = MetricCollection({"mean": Mean(), "max": Max(), "late": late})
    found.update(value=1.0, weight=3)
    found.update(value=5.0, weight=1)
    assert found.compute() == {"mean": 2.0, "max": 5.0, "late": 5.0}


def test_arithmetic_of_metrics_works_and_set_dtype_widens_the_states():
    mean, wide = Mean(), Mean().set_dtype(torch.float64)
    sum_of_squares = Mean() ** 2 + 2 ** Mean()
    for metric in (mean, sum_of_squares, wide):
        metric.update(torch.tensor(1.0))
        metric.update(torch.tensor(5.0))
    assert sum_of_squares.compute() == 9.0 + 8.0
    assert (mean * torch.tensor(2.0)).compute() == 6.0
    assert wide.compute().dtype == torch.float64


# ---------------------------------------------------------------------------- states from elsewhere
LACKING = [*CASES, "MaxRateClassifier", "UpdateStatistics", "FiringStatistics"]


@pytest.mark.parametrize("name", [name for name in LACKING if name != "Except"])
def test_a_state_that_lacks_a_part_is_refused(name):
    case = contract_cases.CASES[name]
    metric = case.make()
    case.run(metric, 0)
    state = metric.state_dict()
    saved = unpack(state["_extra_state"], "") if "_extra_state" in state else state
    for key in saved:
        part = {k: v for k, v in saved.items() if k != key}
        part = {"_extra_state": part} if saved is not state else part
        with pytest.raises(RuntimeError, match=f"should have the keys .*{key}.* Found"):
            case.make().load_state_dict(part)


def test_a_refusal_names_the_metric_within_its_model():
    model = nn.ModuleDict({"loss": Mean(), "all": Except(Window(2), begin=1, period=3)})
    saved = unpack(filled("Mean").state_dict()["_extra_state"], "")
    count, row, longer = (
        {"loss._extra_state": {**saved, **wrong}}
        for wrong in ({"updates": -3}, {"rest": torch.ones(1, 2)}, {"rest": torch.ones(3)})
    )
    other = {"all._extra_state": {"position": 3, "updates": 0}}
    for wrong, words in (
        (count, r"state of `loss` should hold a non-neg.* as `updates`. Found `-3`"),
        (row, r"`loss` should hold states of the values' shape.*'rest': \(1, 2\)"),
        (longer, r"`loss` should hold states of the values' shape.*'rest': \(3,\)"),
        (other, r"`all` should hold a position below the period of 3.*Found `3`"),
    ):
        with pytest.raises(RuntimeError, match=words):
            model.load_state_dict(wrong, strict=False)
    assert (model["loss"].update_count, model["all"].position) == (0, 0)


@pytest.mark.parametrize("step", [-1, 1.5, None, "1", True])
def test_the_step_of_a_writer_is_a_count(step):
    scalar = Scalar(None, "loss")
    words = r"`Scalar\('loss'\)` should hold a non-negative integer as `step`"
    with pytest.raises(RuntimeError, match=words):
        scalar.load_state_dict({"_extra_state": {"step": step}})
    assert scalar.step == 0
