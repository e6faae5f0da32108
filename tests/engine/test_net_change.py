"""The difference of both parts, which a rule adds where nothing needs each of them."""

import copy

import pytest
import torch
from clamped_layers import Fed, layer, raster, show
from forced_summation import evaluated_in
from references import RULES
from round_trips import by_pickle
from subtests import turns
from torch import nn

from lightning_accum import Accumulator, Serial, attach_updater, get_updater
from lightning_accum.engine import summation_forms as forms
from lightning_accum.updates.updater import claim

T, B = 7, 3


@pytest.fixture(autouse=True)
def no_window_is_small(monkeypatch):
    """Sums of small windows are not combined."""
    monkeypatch.setattr(forms, "_SMALL", 0)


COMBINED = {"STDP", "InhibitorySTDP", "TripletSTDP", "MSTDP", "MSTDPET", "BCM"}


def evaluated(model, keep, name="STDP", record=False, **options):
    """Evaluates a rule for two windows of a model, and returns what is pending."""
    case, (outputs, inputs) = RULES[name], model.connection.weight.shape[:2]
    rest = () if isinstance(model.connection, nn.Linear) else (6,)
    pre, post = raster(T, B, inputs, *rest, seed=1), raster(T, B, outputs, *rest, seed=2)
    if not case.spikes:
        pre, post = pre.cumsum(0) - 1.5, post.cumsum(0) - 2
    rule = case.make(**options)
    rule.register_cell("cell", model.cell)
    accumulator = get_updater(model.connection).weight
    accumulator.keep_parts = keep
    if record:
        accumulator.pending.record_parts()
    rewards = torch.linspace(-1, 1, T * B).reshape(T, B).double()
    for window in (slice(0, 4), slice(4, T)):
        show(model, pre[window], post[window])
        rule(**({"reward": rewards[window]} if case.rewarded else {}))
    return accumulator


def convolution():
    return Serial(nn.Conv1d(2, 4, 3, padding=1, dtype=torch.float64), Fed())


def change(accumulator):
    shape = accumulator.shape
    assert shape is not None
    delta = accumulator.update(torch.full(shape, 0.5, dtype=torch.float64))
    assert delta is not None
    return delta


def test_which_rules_add_a_difference():
    for name in RULES:
        if name != "KernelSTDP":  # is a change of its own where the kernel sums pairs of spikes
            assert evaluated(layer(5, 4), False, name).pending.combined == (name in COMBINED), name


@turns("make", [lambda: layer(5, 4), convolution])
@pytest.mark.parametrize("by", ["kernel", "torch"])
def test_a_record_has_the_parts_and_changes_nothing(make, by):
    with evaluated_in("auto", by):
        apart, combined = evaluated(make(), True), evaluated(make(), False)
        recorded = evaluated(make(), False, record=True)
    assert torch.equal(recorded.pos, apart.pos)
    assert torch.equal(recorded.neg, apart.neg)
    assert torch.equal(change(recorded), change(combined))
    recorded.clear()
    assert recorded.pos is None
    assert recorded.pending.record is None


def test_a_record_begins_with_what_is_pending():
    accumulator = Accumulator(torch.Size([2]))
    accumulator.accumulate(torch.ones(2), torch.full((2,), 0.5))
    pending = accumulator.pending
    record = pending.record_parts()
    assert torch.equal(record.parts()[1], torch.full((2,), 0.5))
    accumulator.clear()
    assert pending.record_parts(record) is record  # is used again
    assert not len(record)
    accumulator.accumulate(torch.full((2,), 2.0), None)
    pos, neg = pending.record_parts(record).parts()
    assert torch.equal(pos, torch.full((2,), 2.0))
    assert neg is None


@turns("read", ["pos", "neg"])
def test_parts_that_are_not_known_are_neither_read_nor_deleted(read):
    accumulator = evaluated(layer(5, 4), False)
    before = change(accumulator)
    for refused in (getattr, delattr):
        with pytest.raises(RuntimeError, match=r"`weight` should be known to be read.*keep_parts"):
            refused(accumulator, read)
    assert torch.equal(change(accumulator), before)
    accumulator.clear()
    assert getattr(accumulator, read) is None


def test_parts_are_kept_where_something_needs_each():
    for need, *how in (("fullbound", "power", 1.0, 0.0), ("reduction", "mean")):
        model = layer(5, 4)
        getattr(attach_updater(model.connection, "weight").weight, need)(*how)
        assert not evaluated(model, False).pending.combined
    assert not evaluated(layer(5, 4), False, batch_reduction="amax").pending.combined
    assert not evaluated(layer(5, 4), None).pending.combined


def test_a_bound_that_comes_too_late_is_refused():
    model = layer(5, 4)
    accumulator = evaluated(model, False)
    before = change(accumulator)
    with pytest.raises(RuntimeError, match="`weight` should be known to be bounded"):
        accumulator.upperbound("power", 1.0, power=1.0)
    assert not accumulator.pending.bounds
    updater = get_updater(model.connection)
    claim(updater, model)
    sibling = claim(updater, updater).weight
    assert sibling.keep_parts is False
    sibling.upperbound("power", 1.0, power=1.0)  # is shared
    with pytest.raises(RuntimeError, match="`weight` should be known to be bounded"):
        change(accumulator)
    with pytest.raises(RuntimeError, match="both parts, for its bounds"):
        sibling.load_state_dict(accumulator.state_dict())
    assert sibling.empty
    sibling.upperbound(None)
    assert torch.equal(change(accumulator), before)


def test_a_difference_survives_copies_and_states():
    accumulator = evaluated(layer(5, 4), False)
    before, fresh = change(accumulator), Accumulator(torch.Size([4, 5]), name="weight")
    assert fresh.get_extra_state().keys() == accumulator.get_extra_state().keys()
    fresh.load_state_dict(accumulator.state_dict())
    for each in (copy.deepcopy(accumulator), by_pickle(accumulator), fresh):
        assert each.pending.combined
        assert torch.equal(change(each), before)
        with pytest.raises(RuntimeError, match="should be known to be read"):
            _ = each.pos
        each.clear()
        each.pos = torch.ones(4, 5)
        assert torch.equal(each.pos, torch.ones(4, 5))
    assert torch.equal(change(accumulator), before)


def test_a_change_of_all_processes_stays_a_difference():
    accumulator = evaluated(layer(5, 4), False)
    accumulator.pending.replace(2 * change(accumulator), torch.zeros(4, 5))
    assert accumulator.pending.combined
    accumulator.clear()
    accumulator.keep_parts = True
    accumulator.pending.replace(torch.ones(4, 5), torch.zeros(4, 5))
    assert not accumulator.pending.combined
