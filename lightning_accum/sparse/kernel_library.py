"""The compiled kernel: loads it, says what C may read, and lends it work memory and threads.

Functions that call it check all that C reads and writes, and return ``None`` or ``False`` if there
is no kernel for their arguments: plain torch takes these.
"""

from __future__ import annotations

import ctypes
import json
import logging
import math
import os
import threading
import zlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_accum._compat.torch_internals import is_traced, parallel_region, transform_level

SWITCH = "LIGHTNING_ACCUM_KERNEL"
"""The environment variable that is 0 to do without the kernel, or the level to take."""

REBUILD = "run `python scripts/build_kernel.py`"

_FOLDER = Path(__file__).with_name("kernel")
_REAL = {torch.float32: "float", torch.float64: "double"}
_LEVELS = ("baseline", "avx2", "avx512")  # of processors, in the order of `level.c`
_INTEGERS = ("count_ones", "find_events", "record_step")

Int, Real, At = ctypes.c_int64, ctypes.c_double, ctypes.c_void_p
COLUMN_BYTES = 128  # bytes of the columns of a sum that a thread works on at a time
_MOST_THREADS = 64
_SMALL = 1 << 15  # bytes of work memory that a call gets at least
_EMPTY = ctypes.create_string_buffer(64)
_NOWHERE = ctypes.addressof(_EMPTY)
_SHARE = 1 << 15  # elements from which another thread is worth a call
# Bytes that a thread keeps: two traces of a piece of a window.
_KEPT = 1 << 26

_logger = logging.getLogger("lightning_accum")
_failures: dict[torch.dtype, str] = {}
_kernels: list[Kernel] = []
_PROCESS = os.getpid()


class Kernel(ctypes.CDLL):
    """The library's functions for one dtype and level, by the names that they have in C."""

    def __init__(self, path: str, real: str, level: str) -> None:
        self.level, self._suffix = level, f"_{real}_{level}"
        super().__init__(path)
        for name in _INTEGERS:
            getattr(self, name).restype = ctypes.c_int64
        self.make_step.restype = ctypes.c_double
        if os.getpid() == _PROCESS:
            self.use_region(At(parallel_region()))
        _kernels.append(self)

    def __getitem__(self, name: str) -> ctypes._NamedFuncPointer:
        return super().__getitem__(name + self._suffix)


def _start_own_threads() -> None:
    """Leaves torch's threads, of which a process that was forked has none."""
    for kernel in _kernels:
        kernel.use_region(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_own_threads)


@cache
def library(dtype: torch.dtype) -> Kernel | None:
    """Returns the kernel for a dtype."""
    if dtype not in _REAL:
        return None
    try:
        return _loaded(_REAL[dtype])
    except _Unavailable as reason:
        found, is_meant = str(reason), reason.is_meant
    except (OSError, AttributeError) as error:
        found, is_meant = f"it could not be loaded ({error})", False
    if not _failures and not is_meant:
        _logger.warning(
            "The compiled kernel should load. Found that %s. Plain torch does its work, and takes"
            " longer.",
            found,
        )
    _failures[dtype] = found
    return None


def why_not() -> str | None:
    """Returns why there is no kernel; ``None`` if there is one, or none was needed."""
    return next(iter(_failures.values()), None)


class _Unavailable(Exception):
    """Says why there is no kernel, and whether somebody has decided so."""

    def __init__(self, reason: str, is_meant: bool = False) -> None:
        super().__init__(reason)
        self.is_meant = is_meant


def _loaded(real: str) -> Kernel:
    wanted = os.environ.get(SWITCH, "1")
    if wanted == "0":
        raise _Unavailable(f"{SWITCH}=0 switches it off", is_meant=True)
    path = str(_checked())
    levels = _LEVELS[: 1 + ctypes.CDLL(path).level_float_baseline()]
    if wanted not in ("1", *levels):
        raise _Unavailable(f"{SWITCH} should be 0, 1 or one of {', '.join(levels)}. Found {wanted}")
    return Kernel(path, real, levels[-1] if wanted == "1" else wanted)


def _checked() -> Path:
    """Returns the library's file, if it is as it was built, and from the sources beside it."""
    library = _FOLDER / "kernel.so"
    try:
        record = json.loads((_FOLDER / "kernel.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise _Unavailable(f"it was not built; {REBUILD}") from None
    if not isinstance(record, dict):
        raise _Unavailable("its record is damaged; install the package again")
    sources = sorted(_FOLDER.glob("*.[ch]"))  # which only an editable installation has
    if sources and record.get("sources") != _checksum(*sources):
        raise _Unavailable(f"its sources have changed since it was built; {REBUILD}")
    if "missing" in record:
        raise _Unavailable(
            f"it was not built with the package ({record['missing']})", is_meant=True
        )
    if record.get("library") != _checksum(library):
        raise _Unavailable("its file is damaged; install the package again")
    return library


def _checksum(*files: Path) -> int:
    """Returns the checksum of files that `scripts/build_kernel.py` writes down."""
    return zlib.crc32(b"".join(file.read_bytes() for file in files))


class _Memory(threading.local):
    """A thread's own work memory: blocks to lend, and what is enough for small layers."""

    def __init__(self) -> None:
        self.blocks: list[Tensor] = []
        self.work = torch.empty(0, dtype=torch.uint8)


_memory = _Memory()


class Scratch:
    """Lends uninitialized tensors until the end of a ``with`` block."""

    # The plain form of `empty` is `torch.empty`.

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

    def __exit__(self, *raised: object) -> None:
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


def has_kernel(device: torch.device, dtype: torch.dtype) -> bool:
    """Returns whether there is a kernel for tensors of a device and dtype."""
    return not is_traced() and device.type == "cpu" and library(dtype) is not None


def kernel_for(dtype: torch.dtype, *tensors: tuple[Tensor | None, Sequence[int]]) -> Kernel | None:
    """Returns the kernel for a dtype, if torch traces nothing and C reads tensors as torch does."""
    # as `is_traced`, which would take a call more in each of a batch's products
    traced = torch.compiler.is_compiling() or transform_level() is not None
    if traced or (tensors and not are_values(dtype, *tensors)):
        return None
    return library(dtype)


_TYPES, _STRIDED = frozenset((Tensor, torch.nn.Parameter)), torch.strided


def is_plain(*tensors: Tensor) -> bool:
    """Returns whether C reads the memory of tensors as torch does."""
    for each in tensors:
        plain = type(each) in _TYPES and each.layout is _STRIDED and each.is_cpu
        if not plain or not each.is_contiguous() or each.is_neg():
            return False
    return True


def are_places(*tensors: Tensor) -> bool:
    """Returns whether each tensor is a list of places, rows or columns."""
    for each in tensors:
        if each.dtype != torch.int32 or each.ndim != 1:
            return False
    return is_plain(*tensors)


def are_values(dtype: torch.dtype, *tensors: tuple[Tensor | None, Sequence[int]]) -> bool:
    """Returns whether C reads tensors as torch does, each of this dtype and of its shape."""
    given = []
    for each, shape in tensors:
        if each is None:
            continue
        if type(each) not in _TYPES or each.dtype is not dtype or each.shape != tuple(shape):
            return False
        given.append(each)
    return is_plain(*given)


def threads_among(pieces: int, elements: int) -> int:
    """Returns how many threads share pieces of work, which have so many elements together."""
    return max(1, min(pieces, _MOST_THREADS, torch.get_num_threads(), 1 + elements // _SHARE))


def work_memory(size: int) -> ctypes.c_void_p:
    """Returns bytes that begin with a cache line, for one call of C in this thread."""
    work, least = _memory.work, max(size, _SMALL) + 64
    if not least <= len(work) <= max(least, _KEPT):
        with torch.inference_mode(False):
            work = _memory.work = torch.empty(least, dtype=torch.uint8, device="cpu")
    return At(-(-work.data_ptr() // 64) * 64)


def fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    """Returns fields of a structure that are of one type, by their names in a string."""
    return [(name, kind) for name in names.split()]


def arguments(*values: Any) -> list[Any]:
    """Returns values as C takes them: where tensors begin, null only for ``None``, and numbers."""
    found = list(values)
    for at, each in enumerate(values):
        if each is None or isinstance(each, Tensor):  # torch has 0 for an empty tensor
            found[at] = At(None if each is None else each.data_ptr() or _NOWHERE)
        elif isinstance(each, int | float):
            found[at] = Int(each) if isinstance(each, int) else Real(each)
    return found


_OUTSIDE = (
    "Events should be in the rows and columns of their raster. Found others.",
    "Synapses should lead to neurons of the connection. Found others: load its state again.",
)
OTHERS = 2  # what a function returns that has found such synapses


def check_done(code: int) -> None:
    """Raises an ``IndexError`` if a function has found an index that is outside."""
    if code:
        raise IndexError(_OUTSIDE[code - 1])
