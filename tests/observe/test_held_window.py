"""A recorder that holds a sequence itself keeps what one that copies it keeps, or says why not."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum import Cell, EProp, get_updater
from lightning_accum.nn import Linear, SurrogateLIF
from lightning_accum.observe import WindowRecorder


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(1, 20), max_size=4), max_size=4), st.booleans())
def test_it_keeps_what_a_copy_keeps(windows: list[list[int]], wider: bool) -> None:
    holding, copying = (WindowRecorder(time_dim=0, holds=holds) for holds in (True, False))
    for lengths in windows:
        given_before = []
        for number, length in enumerate(lengths):
            dtype = torch.float64 if wider and number else torch.float32
            sequence = torch.randn(length, 2, 3, dtype=dtype)
            given_before.append((sequence, sequence.clone()))
            holding(sequence)
            copying(sequence)
        for recorder in (holding, copy.deepcopy(holding)):
            found, expected = recorder.window(), copying.window()
            assert (found is None) == (expected is None)
            assert found is None or torch.equal(found, expected)
        holding.clear()
        copying.clear()
        assert all(torch.equal(sequence, before) for sequence, before in given_before)


def test_it_takes_no_memory_of_its_own_and_lets_go() -> None:
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


def test_a_state_that_was_changed_in_place_is_refused() -> None:
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
