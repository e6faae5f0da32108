"""The kernel's step of optimizers that keep a first and a second moment."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from lightning_accum.sparse.compiled import At, Int, Real, kernel_for, threads_among
from lightning_accum.sparse.tensor_places import Places

_BLOCK = 4096  # elements of a piece
_COLUMNS = ("param", "grad", "mean", "square", "most")
_NUMBERS = ("sign", "decay", "penalty", "beta1", "beta2", "inner", "size", "root", "floor")


class _Moments(ctypes.Structure):
    _fields_ = (
        *((name, Int) for name in ("tensors", "elements", "is_belief")),
        *((name, Real) for name in _NUMBERS),
        *((name, At) for name in ("bytes", *_COLUMNS)),
    )


def step_moments(
    dtype: torch.dtype, places: Places, numbers: Sequence[float], is_belief: bool
) -> bool:
    """Steps many tensors of one dtype, if there is a kernel for them.

    Args:
        dtype: their dtype.
        places: where they are, as it was just found: parameters, gradients, first and second
            moments and, for AMSGrad, the maxima of the second, which all change in place, except
            the gradients.
        numbers: the coefficients of the step, in the order of ``optim._kernels.Coefficients``.
        is_belief: whether the second moment is that of the gradient's distance from the first.

    Returns:
        Whether it is done; if not, nothing has changed.
    """
    kernel = kernel_for(dtype)
    if kernel is None:
        return False
    pointers = [place.buffer_info()[0] for place in (places.bytes, *places.starts)]
    tensors, elements = len(places.bytes), places.elements
    task = _Moments(tensors, elements, is_belief, *numbers, *pointers)
    threads = max(1, threads_among(-(-elements // _BLOCK), elements))
    kernel.step_moments(ctypes.byref(task), threads)
    return True
