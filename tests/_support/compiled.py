"""Helpers of the tests of compiled loops: a mark, seeded inputs, and the number of threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from lightning_accum.sparse.kernel_library import has_kernel

needs_kernel = pytest.mark.skipif(
    not has_kernel(torch.device("cpu"), torch.float32), reason="needs the compiled kernel"
)


def numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def spikes(*shape: int, density: float = 0.3, seed: int = 0) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density


def currents(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    """Currents of which some make neurons spike."""
    return numbers(*shape, seed=seed, dtype=dtype) * 0.6 + 0.3


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Runs a block with another number of torch's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
