"""Loads the compiled kernel, which is built when the package is installed."""

from __future__ import annotations

import ctypes
import json
import os
import zlib
from functools import cache
from pathlib import Path

import torch

SWITCH = "LIGHTNING_ACCUM_KERNEL"
"""The environment variable that is 0 to do without the kernel, or the level to take."""

REBUILD = "run `python scripts/build_kernel.py`"

_FOLDER = Path(__file__).with_name("kernel")
_REAL = {torch.float32: "float", torch.float64: "double"}
_LEVELS = ("baseline", "avx2", "avx512")  # of processors, in the order of `level.c`
_INTEGERS = ("count_events", "count_ones", "find_events", "record_step")

_failures: dict[torch.dtype, str] = {}


class Kernel(ctypes.CDLL):
    """The library's functions for one dtype and level, by the names that they have in C."""

    def __init__(self, path: str, real: str, level: str) -> None:
        self.level, self._suffix = level, f"_{real}_{level}"
        super().__init__(path)
        for name in _INTEGERS:
            getattr(self, name).restype = ctypes.c_int64
        self.make_step.restype = ctypes.c_double

    def __getitem__(self, name: str) -> ctypes._NamedFuncPointer:
        return super().__getitem__(name + self._suffix)


@cache
def library(dtype: torch.dtype) -> Kernel | None:
    """Returns the kernel for a dtype.

    Args:
        dtype: the dtype of the computation.

    Returns:
        The loaded library; ``None`` for other dtypes than float32 and float64, and if it is
        switched off, was not built, or is damaged.
    """
    if dtype not in _REAL:
        return None
    try:
        return _loaded(_REAL[dtype])
    except _Unavailable as reason:
        _failures[dtype] = str(reason)
    except (OSError, AttributeError) as error:
        _failures[dtype] = f"it could not be loaded ({error})"
    return None


def why_not() -> str | None:
    """Returns why there is no kernel; ``None`` if there is one, or none was needed."""
    return next(iter(_failures.values()), None)


class _Unavailable(Exception):
    """Says why there is no kernel."""


def _loaded(real: str) -> Kernel:
    wanted = os.environ.get(SWITCH, "1")
    if wanted == "0":
        raise _Unavailable(f"{SWITCH}=0 switches it off")
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
    sources = sorted(_FOLDER.glob("*.[ch]"))  # which only an editable installation has
    if sources and record.get("sources") != _checksum(*sources):
        raise _Unavailable(f"its sources have changed since it was built; {REBUILD}")
    if "missing" in record:
        raise _Unavailable(f"it was not built with the package ({record['missing']})")
    if record.get("library") != _checksum(library):
        raise _Unavailable("its file is damaged; install the package again")
    return library


def _checksum(*files: Path) -> int:
    """Returns the checksum of files that `scripts/build_kernel.py` writes down."""
    return zlib.crc32(b"".join(file.read_bytes() for file in files))
