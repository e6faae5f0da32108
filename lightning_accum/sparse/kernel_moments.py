"""The kernel's step of optimizers that keep a first and a second moment."""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Sequence
from operator import attrgetter

import torch
from torch import Tensor

from lightning_accum.sparse.compiled import At, Int, Real, kernel_for, threads_among

_BLOCK = 4096  # elements of a piece
_PLAIN = {Tensor, torch.nn.Parameter}
_COLUMNS = ("param", "grad", "mean", "square", "most")
_NUMBERS = ("sign", "decay", "penalty", "beta1", "beta2", "inner", "size", "root", "floor")


class _Moments(ctypes.Structure):
    _fields_ = (
        *((name, Int) for name in ("tensors", "elements", "is_belief")),
        *((name, Real) for name in _NUMBERS),
        *((name, At) for name in ("bytes", *_COLUMNS)),
    )


def step_moments(
    columns: Sequence[list[Tensor]], numbers: Sequence[float], is_belief: bool
) -> bool:
    """Steps many tensors of one dtype, if there is a kernel for them.

    The caller has seen that the tensors at one index are dense, agree in dtype, and have their
    elements in the same order in memory. Memory that was replaced since, of other size or on
    another device, is not touched.

    Args:
        columns: parameters, gradients, first and second moments and, for AMSGrad, the maxima of
            the second, which all change in place, except the gradients.
        numbers: the coefficients of the step, in the order of ``optim._kernels.Coefficients``.
        is_belief: whether the second moment is that of the gradient's distance from the first.

    Returns:
        Whether it is done; if not, nothing has changed.
    """
    dtype, device = columns[0][0].dtype, columns[0][0].device
    kernel = kernel_for(dtype) if device.type == "cpu" else None
    if kernel is None or not _are_readable(columns):
        return False
    lengths = [array("q", map(_bytes, column)) for column in columns]
    if any(length != lengths[0] for length in lengths[1:]):
        return False
    places = [lengths[0], *(array("q", map(Tensor.data_ptr, column)) for column in columns)]
    pointers = [At(place.buffer_info()[0]) for place in places]
    elements = sum(lengths[0]) // dtype.itemsize
    task = _Moments(len(columns[0]), elements, is_belief, *numbers, *pointers)
    threads = max(1, threads_among(-(-elements // _BLOCK), elements))
    kernel.step_moments(ctypes.byref(task), threads)
    return True


_bytes, _is_cpu = attrgetter("nbytes"), attrgetter("is_cpu")


def _are_readable(columns: Sequence[list[Tensor]]) -> bool:
    """Returns whether all tensors are in the CPU's memory, and gradients as they are read there."""
    grads = columns[1]
    return (
        all(all(map(_is_cpu, column)) for column in columns)
        and _PLAIN.issuperset(map(type, grads))
        and not any(map(Tensor.is_neg, grads))
    )
