"""How Python calls the compiled kernel: what C may read, its work memory, and its threads.

The files ``kernel_*.py`` have its functions, which check all that C reads and writes, and return
``None`` if there is no kernel for their arguments: plain torch takes these.
"""

from __future__ import annotations

import ctypes
import threading

import torch
from torch import Tensor

from lightning_accum._compat import is_traced
from lightning_accum.sparse.buffers import Scratch
from lightning_accum.sparse.library import Kernel, library

Int, Real, At = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p

COLUMN_BYTES = 128
"""Bytes of the columns of a sum that a thread works on at a time."""
_MOST_THREADS = 64
_SMALL = 1 << 15  # bytes of work memory that a thread keeps
_EMPTY = ctypes.create_string_buffer(64)
_SHARE = 1 << 18  # elements from which another thread is worth its start


def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Returns whether there is a kernel for tensors of a device and dtype."""
    return not is_traced() and device.type == "cpu" and library(dtype) is not None


def kernel_for(dtype: torch.dtype) -> Kernel | None:
    """Returns the kernel for a dtype, unless torch traces a function or there is none."""
    return None if is_traced() else library(dtype)


def is_plain(tensor: Tensor) -> bool:
    """Returns whether C reads the memory of a tensor as torch does."""
    plain = type(tensor) in (Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
    return plain and tensor.is_cpu and tensor.is_contiguous() and not tensor.is_neg()


def are_places(tensor: Tensor) -> bool:
    """Returns whether a tensor is a list of places, rows or columns."""
    return tensor.dtype == torch.int32 and tensor.ndim == 1 and is_plain(tensor)


def are_values(tensor: Tensor, shape: torch.Size, dtype: torch.dtype) -> bool:
    """Returns whether a tensor has a shape and dtype, and C reads it as torch does."""
    return is_plain(tensor) and tensor.dtype == dtype and tensor.shape == shape


def threads_for(columns: int, size: int, work: int) -> int:
    """Returns how many threads share the columns of a sum; no result depends on it."""
    pieces = -(-columns * size // COLUMN_BYTES)
    return max(1, threads_among(pieces, work // 8))


def threads_among(pieces: int, elements: int) -> int:
    """Returns how many threads share pieces of work, which have so many elements together."""
    return min(pieces, _MOST_THREADS, torch.get_num_threads(), 1 + elements // _SHARE)


class _Work(threading.local):
    """A thread's own work memory, which is enough for small layers."""

    def __init__(self) -> None:
        self.memory = ctypes.create_string_buffer(_SMALL + 64)
        self.start = At(-(-ctypes.addressof(self.memory) // 64) * 64)


_work = _Work()


def work_memory(scratch: Scratch, size: int) -> ctypes.c_void_p:
    """Returns work memory that begins with a cache line, until the next call in this thread."""
    if size <= _SMALL:
        return _work.start
    lent = scratch.empty((size + 64,), torch.uint8, torch.device("cpu"))
    return At(-(-lent.data_ptr() // 64) * 64)


def pointer(tensor: Tensor | None) -> ctypes.c_void_p:
    """Returns where a tensor begins; null only for ``None``, which C does not read."""
    if tensor is None:
        return At(None)
    return At(tensor.data_ptr() or ctypes.addressof(_EMPTY))  # torch has 0 for an empty tensor


def check_done(code: int) -> None:
    """Raises an ``IndexError`` if a function has found an index that is outside."""
    if code:
        raise IndexError("Events should be in the rows and columns of their raster. Found others.")
