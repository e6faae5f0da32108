"""Computes the products of one step in the compiled kernel, in memory that each step reuses.

The plain form is the evaluation of the terms of one step, `engine.evaluate`.
"""

import ctypes
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.functional.traces import TraceMode
from lightning_accum.sparse.kernel_library import At, Int, Real, fields, is_plain, kernel_for

_BYTES, _NUMBERS, _SCALED, _CUMULATIVE, _NEAREST = range(5)


class StepTrace(NamedTuple):
    """A trace of an activity."""

    place: int  # which activity
    decay: float  # the share that is left after one step
    mode: TraceMode  # the mode of the trace


class StepProduct(NamedTuple):
    """A product of two values, which are activities and then traces."""

    post: int  # the place of the postsynaptic value
    pre: int  # the place of the presynaptic value
    rate: float  # the factor, with its sign


class _Operation(ctypes.Structure):
    """One operation of the kernel, which writes values computed from others."""

    _fields_ = *fields(Int, "kind size of"), *fields(Real, "factor most"), *fields(At, "source to")


class StepMemory:
    """Holds the values and the products of a step; every step writes over those of the last one."""

    # The next steps are read from the memory of the activities `seen`, each `[K, N]`, for which
    # `suits` is true. The traces begin at zero.

    def __init__(
        self,
        seen: Sequence[Tensor],
        traces: Sequence[StepTrace],
        products: Sequence[StepProduct],
        dtype: torch.dtype,
    ) -> None:
        origins = [*seen, *(seen[each.place] for each in traces)]  # of the shape of each value
        self._lay_out(origins, products, dtype)
        operations: list[_Operation] = []
        self._offsets: list[tuple[int, int]] = []  # bytes from the memory's start

        def add(kind: int, factor: float, of: int, source: Tensor, to: Tensor) -> int:
            operations.append(_Operation(kind, to.numel(), of, factor, 0.0))
            begin, end = (int(each.storage_offset()) * dtype.itemsize for each in (source, to))
            self._offsets.append((begin, end))
            return len(operations) - 1

        for each, value in zip(seen, self.values, strict=False):
            add(_BYTES if each.dtype == torch.bool else _NUMBERS, 1.0, -1, value, value)
        self._traces = [
            add(
                _NEAREST if trace.mode == "nearest" else _CUMULATIVE,
                *(trace.decay, trace.place, self.values[trace.place], value),
            )
            for trace, value in zip(traces, self.values[len(seen) :], strict=True)
        ]
        places: list[int] = []
        factors = (each.split(len(seen[0])) for each in (self.left, self.right))
        for (post, pre, rate), one, two in zip(products, *factors, strict=True):
            places += add(_SCALED, rate, post, self.values[post], one), pre
            if self.values[pre] is not two:
                add(_SCALED, 1.0, pre, self.values[pre], two)
        self._operations = (_Operation * len(operations))(*operations)
        # What C reads, as tensors of its own, whose sizes nobody changes. Their memory may move, as
        # by `share_memory_`.
        self._seen = [each.view(each.shape) for each in seen]
        self._places: list[int] = []
        found, counts = (Int * len(places))(*places), map(Int, (len(products), len(seen[0])))
        self._arguments = self._operations, Int(len(operations)), found, *counts
        self._kernel = kernel_for(dtype)

    def _lay_out(
        self, origins: Sequence[Tensor], products: Sequence[StepProduct], dtype: torch.dtype
    ) -> None:
        """Takes memory for values of the shapes of others, and for the factors of products."""
        rows, inputs = origins[products[0].pre].shape
        outputs = origins[products[0].post].shape[1]
        homes = {each.pre: at for at, each in enumerate(products)}
        own = [each.numel() for place, each in enumerate(origins) if place not in homes]
        sizes = [len(products) * rows * outputs, len(products) * rows * inputs, *own]
        line = 64 // dtype.itemsize  # each begins with a cache line, as tensors do
        with torch.inference_mode(False):
            whole = [-(-size // line) * line for size in sizes]
            self._memory = torch.empty(sum(whole), dtype=dtype)
            pieces = zip(self._memory.split(whole), sizes, strict=True)
            left, right, *others = (piece[:size] for piece, size in pieces)
            self.left, self.right = left.view(-1, outputs), right.view(-1, inputs)
            rights = self.right.split(rows)
            rest = iter(others)
            self.values = [
                rights[homes[place]] if place in homes else next(rest).view(each.shape)
                for place, each in enumerate(origins)
            ]

    @staticmethod
    def suits(seen: Sequence[Tensor], dtype: torch.dtype) -> bool:
        """Returns whether there is a kernel for such activity, booleans or numbers of the dtype."""
        return kernel_for(dtype) is not None and all(
            is_plain(each)
            and each.dtype in (torch.bool, dtype)
            and each.ndim == 2
            and each.numel() > 0
            and len(each) == len(seen[0])
            for each in seen
        )

    def begin(self, place: int, before: Tensor | None) -> None:
        """Sets a trace, before the next step."""
        operation = self._operations[self._traces[place]]
        trace = self.values[len(self._seen) + place]
        if before is None:
            trace.zero_()
        else:
            trace.copy_(before.view(trace.shape))
        operation.most = 0.0 if before is None else float(trace.abs().max())

    def make(self) -> float:
        """Makes the next step, and returns a bound of the elements of ``left.T @ right``."""
        # It is one function written in C: an interrupt comes before or after it.
        assert self._kernel is not None
        places = [each.data_ptr() for each in (self._memory, *self._seen)]
        if places != self._places:
            self._place(*places)
        bound: float = self._kernel.make_step(*self._arguments)
        return bound

    def _place(self, start: int, *seen: int) -> None:
        """Sets where C reads and writes, by the addresses of the memory and of the activities."""
        for operation, (source, to) in zip(self._operations, self._offsets, strict=True):
            operation.source, operation.to = start + source, start + to
        for operation, place in zip(self._operations, seen, strict=False):
            operation.source = place
        self._places = [start, *seen]
