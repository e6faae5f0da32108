"""Steps of spikes that the kernel keeps are those that plain torch would keep."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_helpers import needs_kernel, spikes

from lightning_accum.observe import WindowRecorder
from lightning_accum.sparse.events import Events, SpikeRows

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def same_events(found, raster):
    """Whether events are found, and are those that a search of the raster finds."""
    wanted = Events(raster.flatten(0, -2))
    if found is None or found.shape != wanted.shape:
        return False
    sides = ((each.rows, each.columns, each.row_starts()) for each in (found, wanted))
    return all(map(torch.equal, *sides))


@needs_kernel
@dtypes
@settings(max_examples=80, derandomize=True)
@given(
    shape=st.sampled_from([
        (1,), (4,), (3, 5), (255,), (2, 128), (257,), (600,), (2, 3, 70), (1, 129), (2, 0), (0, 4),
    ]),
    lengths=st.lists(st.integers(1, 25), min_size=1, max_size=3),
    share=st.sampled_from([0.0, 0.05, 0.1, 0.2, 1.0]),
    wrong=st.sampled_from([None, 0.5, 2.0, -1.0, math.nan, math.inf]),
    place=st.sampled_from([0, 255, 256, 511, 512, -1]),
)  # fmt: skip
def test_steps_are_kept_and_counted_and_their_events_found(
    dtype, shape, lengths, share, wrong, place
):
    raster = torch.full((25, *shape), True)
    rows = SpikeRows(raster, dtype)
    for seed, length in enumerate(lengths):
        window = spikes(length, *shape, density=share, seed=seed)
        after = raster[length:].clone()
        for i, step in enumerate(window.to(dtype)):
            if wrong is not None and step.numel():  # and what is rejected does not count
                other = step.clone()
                other.view(-1)[place % step.numel()] = wrong
                assert rows.write(i, other) == -1
            assert rows.write(i, step) == step.sum()
        assert torch.equal(raster[:length], window)
        assert torch.equal(raster[length:], after)
        found = rows.events(length)
        if window.sum() <= raster.numel() // 8:  # there is room for the usual events only
            assert same_events(found, window)
        else:
            assert found is None
        assert rows.events(length - 1) is rows.events(length + 1) is None


@needs_kernel
def test_events_of_a_window_are_known_only_if_the_kernel_wrote_each_step():
    steps = spikes(20, 4, 16, density=0.05, seed=4).float()
    recorder = WindowRecorder(spikes=True)

    def record(window, odd=()):
        recorder.clear()
        for i, step in enumerate(window):
            recorder(step.t().contiguous().t() if i in odd else step)
        assert torch.equal(recorder.window(), window.bool())
        return recorder.events()

    record(steps)  # the memory grows
    assert same_events(record(steps), steps.bool())
    other = steps.flip(0)
    for odd in (range(20), (0,), (7,), (19,)):
        assert record(other, odd) is None
        assert same_events(record(other), other.bool())
    assert record(other[:1]) is None  # a search takes less than to keep them


def test_what_has_no_kernel_is_not_written():
    raster = torch.zeros(2, 4, 4, dtype=torch.bool)
    assert not SpikeRows(raster.float(), torch.float32).exist
    assert not SpikeRows(raster, torch.bfloat16).exist
    assert not SpikeRows(raster[:, 0, 0], torch.float32).exist
