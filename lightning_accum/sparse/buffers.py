"""Work memory that is used again, as new pages cost as much time as the computation in them."""

from __future__ import annotations

import math
import threading
from types import TracebackType

import torch
from torch import Tensor

# Bytes that a thread keeps: two traces of a piece of a window.
_KEPT = 1 << 26


class _Memory(threading.local):
    def __init__(self) -> None:
        self.blocks: list[Tensor] = []


_memory = _Memory()


class Scratch:
    """Lends uninitialized tensors until the end of a ``with`` block.

    The plain form of :meth:`empty` is ``torch.empty``.

    Example:
        >>> import torch
        >>> with Scratch() as scratch:
        ...     scratch.empty((2, 3), torch.float32, torch.device("cpu")).shape
        torch.Size([2, 3])
    """

    def __init__(self) -> None:
        self._taken: list[Tensor] = []

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
        """Returns memory for one tensor; other devices than the CPU reuse memory by themselves."""
        if device.type != "cpu":
            return torch.empty(shape, dtype=dtype, device=device)
        size = math.prod(shape) * dtype.itemsize
        sizes = [(each.numel(), place) for place, each in enumerate(_memory.blocks)]
        fitting = [found for found in sizes if found[0] >= size]
        if fitting:
            block = _memory.blocks.pop(min(fitting)[1])
        else:
            with torch.inference_mode(False):
                block = torch.empty(size, dtype=torch.uint8)
        self._taken.append(block)
        return block[:size].view(dtype).view(shape)

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if not self._taken:
            return
        # keeps the largest blocks, which smaller tensors fit in too
        blocks = sorted([*_memory.blocks, *self._taken], key=Tensor.numel, reverse=True)
        self._taken = []
        _memory.blocks, kept = [], 0
        for block in blocks:
            if kept + block.numel() <= _KEPT:
                _memory.blocks.append(block)
                kept += block.numel()
