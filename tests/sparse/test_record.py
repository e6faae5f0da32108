"""Steps of spikes that the kernel keeps are those that plain torch would keep."""

from __future__ import annotations

import math

import pytest
import torch

from lightning_accum.observe import WindowRecorder
from lightning_accum.sparse.compiled import has_kernel
from lightning_accum.sparse.kernel_record import SpikeRows

needs_kernel = pytest.mark.skipif(
    not has_kernel(torch.device("cpu"), torch.float32), reason="needs a C compiler"
)
dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
others = pytest.mark.parametrize("value", [0.5, 2.0, -1.0, math.nan, math.inf])


@needs_kernel
@dtypes
@pytest.mark.parametrize("shape", [(1,), (3, 5), (255,), (2, 128), (257,), (32, 400), (0, 4)])
def test_a_step_is_kept_and_counted(dtype, shape) -> None:
    step = (torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3).to(dtype)
    raster = torch.full((3, *shape), True)
    assert SpikeRows(raster.unbind(0), dtype).write(1, step) == step.sum()
    assert torch.equal(raster[1], step.bool())
    assert raster[0].all()
    assert raster[2].all()


@needs_kernel
@dtypes
@others
def test_another_value_is_found_wherever_it_is(dtype, value) -> None:
    rows = SpikeRows(torch.zeros(1, 600, dtype=torch.bool).unbind(0), dtype)
    for place in (0, 255, 256, 511, 512, 599):
        step = torch.zeros(600, dtype=dtype)
        step[place] = value
        assert rows.write(0, step) == -1


def test_what_has_no_kernel_is_not_written() -> None:
    raster = torch.zeros(2, 4, 4, dtype=torch.bool)
    rows = SpikeRows(raster.unbind(0), torch.float32)
    ones = torch.ones(4, 4)
    steps = torch.ones(4, 8)[:, ::2], ones.double(), ones.to("meta"), ones.bool(), ones[:2]
    for step in steps:
        assert rows.write(0, step) is None
    assert rows.write(0, torch.ones(1, 1).expand(4, 4)) is None
    assert not SpikeRows(raster.float().unbind(0), torch.float32).exist
    assert not SpikeRows(raster.unbind(0), torch.bfloat16).exist
    assert not SpikeRows((), torch.float32).exist
    assert not raster.any()


@dtypes
@others
def test_a_rejected_step_leaves_the_window_as_it_was(dtype, value) -> None:
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


def test_steps_of_any_memory_are_recorded_alike() -> None:
    steps = (torch.rand(40, 4, 6, generator=torch.Generator().manual_seed(1)) < 0.3).float()
    recorder = WindowRecorder(spikes=True)
    for window in range(2):
        for i, step in enumerate(steps):
            each = step.t().contiguous().t() if i % 3 == 1 else step
            recorder(
                each.double() if window and i > 30 else each.clone().requires_grad_(i % 5 == 0)
            )
        assert torch.equal(recorder.window(), steps.bool())
        recorder.clear()
