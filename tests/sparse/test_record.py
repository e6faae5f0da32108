"""Steps of spikes that the kernel keeps are those that plain torch would keep."""

import math

import pytest
import torch
from compiled import needs_kernel

from lightning_accum.observe import WindowRecorder
from lightning_accum.sparse.events import Events, SpikeRows
from lightning_accum.sparse.kernel_library import has_kernel

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
others = pytest.mark.parametrize("value", [0.5, 2.0, -1.0, math.nan, math.inf])


@needs_kernel
@dtypes
@pytest.mark.parametrize("shape", [(1,), (3, 5), (255,), (2, 128), (257,), (32, 400), (0, 4)])
def test_a_step_is_kept_and_counted(dtype, shape):
    step = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3).to(dtype)
    raster = torch.full((3, *shape), True)
    assert SpikeRows(raster, dtype).write(1, step) == step.sum()
    assert torch.equal(raster[1], step.bool())
    assert raster[0].all()
    assert raster[2].all()


@needs_kernel
@dtypes
@others
def test_another_value_is_found_wherever_it_is(dtype, value):
    rows = SpikeRows(torch.zeros(1, 600, dtype=torch.bool), dtype)
    for place in (0, 255, 256, 511, 512, 599):
        step = torch.zeros(600, dtype=dtype)
        step[place] = value
        assert rows.write(0, step) == -1


def same_events(found, raster):
    """Whether events are found, and are those that a search of the raster finds."""
    wanted = Events(raster.flatten(0, -2))
    return (
        found is not None
        and all(
            torch.equal(getattr(found, name), getattr(wanted, name)) for name in ("rows", "columns")
        )
        and torch.equal(found.row_starts(), wanted.row_starts())
        and found.shape == wanted.shape
    )


@needs_kernel
@dtypes
@pytest.mark.parametrize("shape", [(4,), (3, 5), (2, 64), (2, 3, 70), (1, 129), (2, 0), (0, 3)])
def test_events_are_found_on_the_way(dtype, shape):
    steps = torch.rand(20, *shape, generator=torch.Generator().manual_seed(2)) < 0.05
    raster = torch.zeros(25, *shape, dtype=torch.bool)
    rows = SpikeRows(raster, dtype)
    for window in (steps, steps[:7].flip(0)):
        for i, step in enumerate(window):
            rows.write(i, step.to(dtype))
        assert same_events(rows.events(len(window)), window)
        assert rows.events(len(window) - 1) is rows.events(len(window) + 1) is None


@needs_kernel
def test_events_of_a_step_that_is_rejected_do_not_count():
    steps = torch.eye(4).repeat(6, 1, 1)
    rows = SpikeRows(torch.zeros(6, 4, 4, dtype=torch.bool), torch.float32)
    for i, step in enumerate(steps):
        assert rows.write(i, 2 * step) == -1
        assert rows.write(i, step) == 4
    assert same_events(rows.events(6), steps.bool()) == (6 * 4 <= 6 * 16 // 8)


@needs_kernel
@pytest.mark.parametrize("share", [0.0, 0.1, 0.2, 1.0])
def test_there_is_room_for_the_usual_events_only(share):
    steps = torch.rand(30, 8, 50, generator=torch.Generator().manual_seed(3)) < share
    raster = torch.zeros(30, 8, 50, dtype=torch.bool)
    rows = SpikeRows(raster, torch.float32)
    for i, step in enumerate(steps.float()):
        rows.write(i, step)
    assert torch.equal(raster, steps)
    found = rows.events(30)
    assert same_events(found, steps) if share < 0.125 else found is None


@needs_kernel
def test_events_of_a_window_are_known_only_if_the_kernel_wrote_each_step():
    steps = (torch.rand(20, 4, 16, generator=torch.Generator().manual_seed(4)) < 0.05).float()
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


@dtypes
@others
def test_a_rejected_step_leaves_the_window_as_it_was(dtype, value):
    recorder, ones = WindowRecorder(spikes=True), torch.ones(8, 4, dtype=dtype)
    for _ in range(5):
        recorder(ones)
    wrong = ones.clone()
    wrong[7, 3] = value
    if has_kernel(torch.device("cpu"), dtype):
        with pytest.raises(ValueError, match="should be 0 or 1"):
            recorder(wrong)
        assert recorder.length == 5
        recorder(0 * ones)
        assert recorder.window().sum() == 5 * 32
