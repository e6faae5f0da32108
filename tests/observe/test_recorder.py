from __future__ import annotations

import contextlib
import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from turns import turns
from watching import pickled

from lightning_accum import STDP, Cell, EProp, get_updater
from lightning_accum.nn import LIF, Linear, SurrogateLIF
from lightning_accum.observe import WindowRecorder
from lightning_accum.observe.recorder import SpikeCheck
from lightning_accum.observe.reducer import Latest
from lightning_accum.sparse.events import Events, publish_events
from lightning_accum.sparse.kernel_library import has_kernel

quick = settings(deadline=None, derandomize=True, max_examples=40)
COPIES = [
    copy.deepcopy,
    pickled,
    lambda x: loaded(x),
    lambda x: copy.deepcopy(x).to("cpu"),
]


def loaded(recorder):
    fresh = WindowRecorder(recorder.spikes, recorder.time_dim, recorder.dt)
    fresh.load_state_dict(recorder.state_dict())
    return fresh


def memory(recorder):
    return recorder._buffer.memory


@quick
@given(
    shape=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    time_dim=st.sampled_from([None, 0]),
    spikes=st.booleans(),
    wider=st.booleans(),
    holds=st.booleans(),
    seed=st.integers(0, 999),
)
def test_hands_out_what_it_was_given(shape, lengths, time_dim, spikes, wider, holds, seed):
    recorder, generator = WindowRecorder(spikes, time_dim, holds=holds), torch.Generator()
    generator.manual_seed(seed)
    for steps in lengths:
        x = torch.rand((steps, *shape), generator=generator)
        x = (x < 0.5).float() if spikes else x
        pieces = [each.clone() for each in (x.tensor_split(3) if time_dim == 0 else x)]
        pieces[1:] = [each.double() if wider else each for each in pieces[1:]]
        before = copy.deepcopy(pieces)
        for piece in pieces:
            recorder(piece)
        assert recorder.length == steps
        for each in (recorder, copy.deepcopy(recorder)):
            window = each.window()
            if steps == 0:
                assert window is each.peek() is None
            else:
                assert torch.equal(window.to(x.dtype), x)
                assert window.dtype == (torch.bool if spikes else pieces[-1].dtype)
                assert torch.equal(each.peek(), window[-1])
                assert torch.equal(each.dump(), window)
        recorder.clear()
        assert recorder.window() is None
        assert all(torch.equal(piece, was) for piece, was in zip(pieces, before, strict=True))


def test_memory_doubles_or_is_that_of_a_sequence_and_is_used_again():
    steps, sequences, sizes = WindowRecorder(), WindowRecorder(time_dim=0), set()
    for _ in range(1000):
        steps(torch.zeros(1))
        sizes.add(memory(steps).shape[0])
    assert sizes == {16, 32, 64, 128, 256, 512, 1024}
    sequences(torch.zeros(250, 2))
    assert memory(sequences).shape[0] == 250
    addresses = memory(steps).data_ptr(), memory(sequences).data_ptr()
    steps.clear(), sequences.clear()
    for _ in range(1000):
        steps(torch.ones(1))
    sequences(torch.ones(250, 2))
    assert (memory(steps).data_ptr(), memory(sequences).data_ptr()) == addresses
    assert steps.window().sum() == 1000
    sequences(torch.zeros(10, 2))
    assert sequences.length == 260
    assert sequences.window().sum() == 500


def test_a_held_sequence_takes_no_memory_and_is_let_go():
    recorder, sequence = WindowRecorder(time_dim=0, holds=True), torch.randn(4, 2, 3)
    recorder(sequence)
    assert recorder.window().data_ptr() == sequence.data_ptr()
    recorder.clear()
    recorder(torch.zeros(4, 2, 3))
    assert sequence.all()
    with torch.inference_mode():
        temporary = torch.randn(4, 2, 3)
        recorder.clear()
        recorder(temporary)
    assert recorder.window().data_ptr() != temporary.data_ptr()


def test_a_held_state_that_was_changed_in_place_is_refused():
    fc, lif = Linear(3, 4), SurrogateLIF(4, time_dim=0)
    rule = EProp(0.1, time_dim=0)
    rule.register_cell("cell", Cell(fc, lif))
    lif(fc(torch.ones(5, 2, 3)))
    lif.membrane.zero_()
    with pytest.raises(ValueError, match=r"neuron\.membrane of cell `cell` should stay as they"):
        rule(error=torch.randn(5, 2, 4))
    assert get_updater(fc).weight.pos is None
    rule.clear()
    lif(fc(torch.ones(5, 2, 3)))
    rule(error=torch.randn(5, 2, 4))
    assert get_updater(fc).weight.neg is not None


@turns("density", [0.005, 0.9])
@turns("parts", [1, 2])
@turns("change", [torch.Tensor.copy_, lambda old, new: np.copyto(old.numpy(), new.numpy())])
def test_rasters_whose_events_are_found_may_change_and_are_not_copied(density, parts, change):
    rasters = (torch.rand(2, parts, 60, 4, 300) < density).unbind()
    found = []
    for reused in (True, False):
        fc, lif = Linear(300, 40, bias=False), LIF(40, time_dim=0)
        torch.nn.init.constant_(fc.weight, 0.5)
        rule, cell, same = STDP(0.1, -0.05, time_dim=0), Cell(fc, lif), rasters[0][0].clone()
        other = STDP(0.2, -0.1, time_dim=0)
        for each in (rule, other):
            each.register_cell("c", cell)
        kept = [monitor.reducer for _, monitor in rule.named_monitors_of("c")]
        for window in rasters:
            for raster in window:
                if reused:
                    change(same, raster)
                lif(fc(same if reused else raster))
            held = same.data_ptr() in [reducer.window().data_ptr() for reducer in kept]
            assert held == (reused and parts == 1 and density < 0.5)
            same.zero_()
            rule(), other()
        found.append(get_updater(fc).weight.update(fc.weight))
    assert found[0].any()
    assert torch.equal(*found)


@turns("spikes", [True, False])
def test_spikes_take_a_byte_each_and_other_activity_is_kept_as_it_comes(spikes):
    recorder = WindowRecorder(spikes)
    for dtype in (torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.float64):
        recorder(torch.tensor([0, 1]).to(dtype))
        assert recorder.window().dtype == (torch.bool if spikes else dtype)
        assert recorder.window().tolist() == [[0, 1]]
        recorder.clear()
    recorder(torch.ones(2))
    recorder.to(torch.float64)  # in the middle of a window
    recorder(torch.ones(2))
    assert recorder.window().dtype == (torch.bool if spikes else torch.float64)
    assert recorder.length == 2
    recorder.clear()
    recorder(torch.zeros(2, dtype=torch.bool))
    recorder(torch.full((2,), 1.0 if spikes else 0.25))  # to which booleans widen
    assert recorder.window().tolist() == [[0, 0], [1, 1] if spikes else [0.25, 0.25]]


ROOTS = [(1 + 7**0.5) / 2, (1 - 7**0.5) / 2]  # which add up to their squares


@turns("values", [[1, 0.5], [0, torch.nan], [2, 0.5, 0.5], [3.0, -1.0], [1.0, 1e-9], ROOTS])
@turns("time_dim", [None, 0])
def test_spikes_that_are_no_spikes(values, time_dim):
    recorder = WindowRecorder(spikes=True, time_dim=time_dim)
    x = torch.tensor(values).expand((2, len(values)) if time_dim is None else (3, 2, len(values)))
    found = x[(x != 0) & (x != 1)][0].item()
    with pytest.raises(ValueError, match=f"should be 0 or 1. Found {found} in a"):
        recorder(x)
    assert recorder.window() is None
    recorder(torch.ones_like(x))
    assert recorder.window().all()


def take(recorder, steps):
    for step in steps:
        recorder(step)
    recorder.window()


BAD = [0.25, 1e-9, 3.0, -1.0, torch.inf, -torch.inf, torch.nan]


@pytest.fixture
def no_kernel(monkeypatch):
    """Leaves the check of spikes to torch."""
    monkeypatch.setattr("lightning_accum.sparse.search.count_ones", lambda _: None)


@turns("kernel", [True, False])
@turns("value", BAD)
@turns("at", [0, 1, 2, 17, 39])
@turns("size", [2, 1 << 17, 1 << 18])
def test_every_step_of_a_window_is_looked_at(value, at, size, kernel, request):
    if not kernel:
        request.getfixturevalue("no_kernel")
    recorder = WindowRecorder(spikes=True)
    steps = torch.zeros(40, 1, 2)
    steps[0, 0, 0] = 1.0
    steps[at, 0, 1] = value
    with pytest.raises(ValueError, match="should be 0 or 1"):
        take(recorder, (step.repeat(1, size // 2) for step in steps))
    recorder.clear()
    take(recorder, (steps != 0).float())
    recorder.confirm()
    assert torch.equal(recorder.window(), steps != 0)


@turns("value", BAD)
@turns("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_every_sequence_is_looked_at_whole(value, dtype):
    recorder = WindowRecorder(spikes=True, time_dim=0)
    sequence = torch.ones(3, 7, 12345).to(dtype)
    recorder(sequence)
    if dtype == torch.int64:
        value = 2 if value != value or value < 1 or value == torch.inf else int(value)
    sequence[-1, -1, -1] = value
    with pytest.raises(ValueError, match="should be 0 or 1"):
        recorder(sequence)
    assert torch.equal(recorder.window(), torch.ones(3, 7, 12345, dtype=torch.bool))


@turns("value", [*BAD, 1.0])
def test_other_values_are_noted_until_they_are_confirmed(value):
    check, steps = SpikeCheck("there"), torch.eye(3).unsqueeze(1).repeat(4, 1, 1)
    steps[5, 0, 1] = value
    for step in (*steps, steps):
        check.look_later(step, step.bool())
    expected = pytest.raises(ValueError, match=r"0 or 1\. Found other values there")
    with contextlib.nullcontext() if value == 1.0 else expected:
        check.confirm()
    check.confirm()  # there is nothing new


def test_on_an_accelerator_only_to_confirm_waits():
    for time_dim in (None, 0):
        recorder = WindowRecorder(spikes=True, time_dim=time_dim)
        for _ in range(40):
            recorder(torch.ones(1, 1, 2, device="meta"))
        recorder.window()
        with pytest.raises(RuntimeError, match="meta"):  # it has no values
            recorder.confirm()
        recorder.confirm()  # there is nothing new


def test_a_refused_step_is_not_looked_at_later():
    recorder = WindowRecorder(spikes=True)
    recorder(torch.ones(1, 2))
    with pytest.raises(ValueError, match="shape"):
        recorder(torch.full((1, 3), 0.5))
    recorder.confirm()
    assert recorder.window().shape == (1, 1, 2)


def test_a_shape_that_changes_within_a_window():
    recorder = WindowRecorder()
    recorder(torch.ones(4, 3))
    recorder(torch.ones(4, 3))
    with pytest.raises(ValueError, match=r"\(2, 3\) after 2 steps of \(4, 3\)"):
        recorder(torch.ones(2, 3))
    assert recorder.length == 2
    recorder.clear()
    recorder(torch.ones(2, 3))
    assert recorder.window().shape == (1, 2, 3)
    sequences = WindowRecorder(time_dim=0)
    sequences(torch.ones(5, 4, 3))
    with pytest.raises(ValueError, match=r"\(2, 3\) after 5 steps of \(4, 3\)"):
        sequences(torch.ones(5, 2, 3))


@turns("through", COPIES)
@turns("time_dim", [None, 0])
def test_copies_in_the_middle_of_a_window(through, time_dim):
    recorder = WindowRecorder(spikes=True, time_dim=time_dim)
    step = torch.eye(2) if time_dim is None else torch.eye(2).unsqueeze(0)
    empty = through(recorder)
    assert empty.window() is None
    for _ in range(3):
        recorder(step)
    twin = through(recorder)
    for each in (recorder, twin):
        each(1 - step)
    expected = torch.stack([torch.eye(2)] * 3 + [1 - torch.eye(2)]).bool()
    assert torch.equal(twin.window(), expected)
    assert torch.equal(recorder.window(), expected)
    twin.clear()
    twin(step)
    assert twin.length == 1
    assert torch.equal(recorder.window(), expected)
    with pytest.raises(ValueError, match="within a window"):
        twin(step[..., :1])


@turns("spikes", [True, False])
def test_inference_mode_and_out_of_it_within_a_window(spikes):
    recorder = WindowRecorder(spikes)
    for i in range(40):
        with torch.inference_mode(i % 3 == 0):
            recorder(torch.ones(2))
    assert recorder.window().shape == (40, 2)
    with torch.inference_mode():
        recorder.load_state_dict(recorder.state_dict())
    recorder.clear()
    recorder(torch.zeros(2))
    assert recorder.window().tolist() == [[0, 0]]


def used(x):
    """As a connection uses what a monitor has seen."""
    publish_events(x, Events(x.flatten(0, 1)))


def raster(seed=0):
    return torch.rand(5, 2, 3, generator=torch.Generator().manual_seed(seed)) < 0.5


@turns("when", ["at once", "before", "changed, then used", "used, then changed", "inference"])
def test_events_that_are_found_when_a_sequence_is_used_are_known(when):
    recorder = WindowRecorder(spikes=True, time_dim=0)
    with torch.inference_mode(when == "inference"):
        x = raster()
        if when == "before":
            used(x)  # nobody waits: the next call may see other spikes in the same memory
        recorder(x)
        assert recorder.events() is None
        if when == "changed, then used":
            x.logical_not_()
        if when != "before":
            used(x)
        if when == "used, then changed":
            x.logical_not_()
        if when not in ("at once", "used, then changed"):
            assert recorder.events() is None
            return
    assert torch.equal(recorder.events().rows, Events(recorder.window().flatten(0, 1)).rows)
    for copied in COPIES:  # which have no part in what is found
        assert copied(recorder).events() is None
    other = raster(1)
    recorder(other)
    used(other)  # those of one sequence are not those of two
    assert recorder.events() is None
    recorder.clear()
    assert recorder.events() is None


@quick
@given(
    windows=st.lists(st.lists(st.sampled_from([0, 1, 3, 3, 3]), max_size=2), max_size=8),
    dtypes=st.lists(st.sampled_from([torch.float32, torch.float64, torch.bool]), min_size=1),
    seed=st.integers(0, 999),
)
def test_events_of_sequences_are_those_of_the_window_if_they_are_known(windows, dtypes, seed):
    recorder, generator = WindowRecorder(spikes=True, time_dim=0), torch.Generator()
    generator.manual_seed(seed)
    for i, lengths in enumerate(windows):
        given = [torch.rand(steps, 2, 3, generator=generator) < 0.1 for steps in lengths]
        for x in given:
            recorder(x.to(dtypes[i % len(dtypes)]))
        window, events = recorder.window(), recorder.events()
        assert (window is None) == (recorder.length == 0)
        assert window is None or torch.equal(window, torch.cat(given))
        if events is not None:
            expected = Events(window.flatten(0, 1))
            assert torch.equal(events.rows, expected.rows)
            assert torch.equal(events.columns, expected.columns)
        recorder.clear()


def test_sequences_as_before_are_checked_and_searched_in_one_pass():
    recorder, x = WindowRecorder(spikes=True, time_dim=0), torch.eye(30).unsqueeze(1)
    for _ in range(3):
        recorder.clear()
        recorder(x)
    known = has_kernel(x.device, x.dtype)
    assert (recorder.events() is not None) == known
    recorder.clear()
    with pytest.raises(ValueError, match=r"should be 0 or 1. Found 0\.5"):
        recorder(x * 0.5)
    assert recorder.window() is None
    assert recorder.events() is None
    recorder(1 - x)
    assert torch.equal(recorder.window(), x == 0)


def test_the_latest_is_a_copy_without_a_graph_made_in_inference_mode_or_not():
    latest = Latest()
    for value in (1.0, 0.0):
        with torch.inference_mode(value == 1.0):
            latest(torch.tensor([value], requires_grad=True))
    assert latest.peek().tolist() == [0.0]
    assert not latest.peek().requires_grad
    latest.clear()
    assert latest.peek() is latest.dump() is None
