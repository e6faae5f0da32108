"""Helpers of the tests of compiled loops: a mark, seeded inputs, and the number of threads."""

from contextlib import contextmanager

import pytest
import torch

from lightning_accum.sparse.kernel_library import has_kernel

needs_kernel = pytest.mark.skipif(
    not has_kernel(torch.device("cpu"), torch.float32), reason="needs the compiled kernel"
)


def numbers(*shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def spikes(*shape, density=0.3, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < density


def currents(*shape, seed=0, dtype=torch.float64):
    """Currents of which some make neurons spike."""
    return numbers(*shape, seed=seed, dtype=dtype) * 0.6 + 0.3


@contextmanager
def threads(count):
    """Runs a block with another number of torch's threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
