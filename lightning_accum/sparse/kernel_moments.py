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
_GRADIENTS = 1  # index of their column
_PLAIN = {Tensor, torch.nn.Parameter}
_COLUMNS = ("param", "grad", "mean", "square", "most")
_NUMBERS = ("sign", "decay", "penalty", "beta1", "beta2", "inner", "size", "root", "floor")


class _Moments(ctypes.Structure):
    _fields_ = (
        *((name, Int) for name in ("tensors", "elements", "is_belief")),
        *((name, Real) for name in _NUMBERS),
        *((name, At) for name in ("bytes", *_COLUMNS)),
    )


class Places:
    """The memory of columns of tensors, found once and compared at every step.

    Tensors of the same size at the same address as before are in the same memory, so nothing else
    about it is looked up again. Gradients are usually new tensors at every step, and are checked.
    """

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._lengths = array("q")
        self._known: dict[int, tuple[list[int], array[int]]] = {}

    def find(self, columns: Sequence[list[Tensor]]) -> list[array[int]] | None:
        """Returns the tensors' sizes in bytes, and for each column where its tensors begin.

        Args:
            columns: as for :func:`step_moments`.

        Returns:
            None if the tensors at one index differ in size, or C cannot read one.
        """
        sizes = list(map(_bytes, columns[0]))
        if any(list(map(_bytes, column)) != sizes for column in columns[1:]):
            return None
        if sizes != self._sizes:
            self._sizes, self._lengths = sizes, array("q", sizes)
            self._known.clear()
        found = [self._lengths]
        for i, column in enumerate(columns):
            place = _gradients(column) if i == _GRADIENTS else self._place(i, column)
            if place is None:
                return None
            found.append(place)
        return found

    def _place(self, at: int, column: list[Tensor]) -> array[int] | None:
        """Returns where the tensors of a column begin, if C can write there."""
        starts = list(map(Tensor.data_ptr, column))
        known = self._known.get(at)
        if known is None or known[0] != starts:
            if not all(map(_is_cpu, column)):
                return None
            known = self._known[at] = starts, array("q", starts)
        return known[1]


def _gradients(column: list[Tensor]) -> array[int] | None:
    """Returns where gradients begin, if C reads them as torch does."""
    if not _PLAIN.issuperset(map(type, column)) or not all(map(_is_cpu, column)):
        return None
    return None if any(map(Tensor.is_neg, column)) else array("q", map(Tensor.data_ptr, column))


def step_moments(
    columns: Sequence[list[Tensor]],
    numbers: Sequence[float],
    is_belief: bool,
    places: Places | None = None,
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
        places: the memory of the same columns at the step before, and at this one afterwards.

    Returns:
        Whether it is done; if not, nothing has changed.
    """
    dtype, device = columns[0][0].dtype, columns[0][0].device
    kernel = kernel_for(dtype) if device.type == "cpu" else None
    found = (places or Places()).find(columns) if kernel is not None else None
    if kernel is None or found is None:
        return False
    pointers = [At(place.buffer_info()[0]) for place in found]
    elements = sum(found[0]) // dtype.itemsize
    task = _Moments(len(columns[0]), elements, is_belief, *numbers, *pointers)
    threads = max(1, threads_among(-(-elements // _BLOCK), elements))
    kernel.step_moments(ctypes.byref(task), threads)
    return True


_bytes, _is_cpu = attrgetter("nbytes"), attrgetter("is_cpu")
