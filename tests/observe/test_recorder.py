from __future__ import annotations

import contextlib
import copy
import functools
import random
import re
from itertools import product

import numpy as np
import pytest
import torch
from round_trips import by_pickle
from subtests import turns

from lightning_accum import STDP, Cell, EProp, RuleTrainer, get_updater
from lightning_accum.nn import LIF, Linear, SurrogateLIF
from lightning_accum.observe import WindowRecorder
from lightning_accum.observe.recorder import SpikeCheck
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_library import has_kernel

COPIES = [
    copy.deepcopy, by_pickle, lambda x: loaded(x), lambda x: copy.deepcopy(x).to("cpu"),
]  # fmt: skip


def loaded(recorder):
    fresh = WindowRecorder(recorder.spikes, recorder.time_dim)
    fresh.load_state_dict(recorder.state_dict())
    return fresh


def memory(recorder):
    return recorder._buffer.memory


class Window:
    """A recorder, and what it should hand out: the steps since the window began."""

    def __init__(self, draw):
        self.draw, self.spikes, self.time_dim = draw, draw.random() < 0.5, draw.choice([None, 0])
        self.recorder = WindowRecorder(self.spikes, self.time_dim, holds=draw.random() < 0.5)
        self.random = torch.Generator().manual_seed(draw.randrange(999))
        self.clear()

    def clear(self):
        self.recorder.clear()
        self.shape = self.draw.choice([*4 * [(2, 3)], (1,), (2, 0), (3, 2, 2)])
        self.given, self.expected = [], []

    def record(self):
        """Steps or a sequence."""
        steps = self.draw.choice([1, 3, 3, 0 if self.time_dim == 0 else 20])
        x = torch.rand((steps, *self.shape), generator=self.random)
        x = (x < 0.3).float() if self.spikes else x
        dtypes = [torch.float32, torch.float32, torch.float64] + self.spikes * 3 * [torch.bool]
        x = x.to(self.draw.choice(dtypes if steps else dtypes[:1]))
        for piece in [x] if self.time_dim == 0 else x.clone().unbind():
            self.recorder(piece)
            self.given.append((piece, piece.clone()))
        self.expected.append(x)

    def refuse(self):
        """Values of a wrong kind or, within a window, a wrong shape."""
        shape = self.shape if self.time_dim is None else (2, *self.shape)
        wrong = [([1.0], "Found"), (1.0, "Found"), (None, "Found")]
        if length := self.recorder.length:
            words = re.escape(f"{(*self.shape, 2)} after {length} steps of {self.shape}")
            wrong += [(torch.full((*shape, 2), 0.5), words)] * 3
        if self.spikes and 0 not in shape:
            wrong += [(torch.full(shape, 0.5), "0 or 1"), (torch.ones(shape) * 1j, "real")]
        value, words = self.draw.choice(wrong)
        with pytest.raises((ValueError, TypeError), match=words):
            self.recorder(value)
        self.recorder.confirm()  # and it is not looked at later

    def copy(self):
        original, self.recorder = self.recorder, self.draw.choice(COPIES)(self.recorder)
        shape = self.shape if self.time_dim is None else (2, *self.shape)
        original(torch.ones(shape))  # goes on apart

    def check(self):
        window, given = self.recorder.window(), [x.double() for x in self.expected]
        whole = torch.cat(given or [NO])
        assert self.recorder.length == len(whole)
        assert (window is None) == (self.recorder.peek() is None) == (not len(whole))
        if window is not None:
            dtypes = [x.dtype for x in self.expected if len(x)]
            dtype = torch.bool if self.spikes else functools.reduce(torch.promote_types, dtypes)
            assert window.dtype == dtype
            assert torch.equal(window.double(), whole)
            assert torch.equal(self.recorder.peek(), window[-1])
            assert torch.equal(self.recorder.dump(), window)
            self.recorder.dump().zero_()  # a copy
        events = self.recorder.events()
        if events is not None:
            expected = Events(window.flatten(0, -2))
            assert torch.equal(events.rows, expected.rows)
            assert torch.equal(events.columns, expected.columns)
        assert all(torch.equal(piece, was) for piece, was in self.given)


NO = torch.zeros(0)


@turns("seed", range(60))
def test_hands_out_what_it_was_given(seed):
    draw = random.Random(seed)
    window = Window(draw)
    for call in draw.choices(["record"] * 5 + ["clear"] * 3 + ["refuse", "copy"], k=60):
        print(call)  # which a failure shows
        with torch.inference_mode(draw.random() < 0.2):
            getattr(window, call)()
        window.check()


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
    rule = RuleTrainer(EProp(0.1), time_dim=0)
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
def test_rasters_that_were_recorded_may_change(density, parts, change):
    rasters = (torch.rand(2, parts, 60, 4, 300) < density).unbind()
    found = []
    for reused in (True, False):
        fc, lif = Linear(300, 40, bias=False), LIF(40, time_dim=0)
        torch.nn.init.constant_(fc.weight, 0.5)
        rule, other = (RuleTrainer(STDP(lr, -lr / 2), time_dim=0) for lr in (0.1, 0.2))
        cell, same = Cell(fc, lif), rasters[0][0].clone()
        for each in (rule, other):
            each.register_cell("c", cell)
        for window in rasters:
            for raster in window:
                if reused:
                    change(same, raster)
                lif(fc(same if reused else raster))
            same.zero_()
            rule(), other()
        found.append(get_updater(fc).weight.update(fc.weight))
    assert found[0].any()
    assert torch.equal(*found)


def take(recorder, steps):
    for step in steps:
        recorder(step)
    recorder.window()


BAD = [0.25, 1e-9, 3.0, -1.0, torch.inf, -torch.inf, torch.nan]


@pytest.fixture
def no_kernel(monkeypatch):
    """Leaves the check of spikes to torch."""
    monkeypatch.setattr("lightning_accum.sparse.kernel_library.kernel_for", lambda _: None)


@turns("kernel", [True, False])
@turns("value, at, size", [
    *product(BAD, (0, 1, 2, 17, 39), (2,)), *product(BAD[-1:], (0, 39), (1 << 17, 1 << 18)),
])  # fmt: skip
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
