"""Builds the compiled kernel with the machine's C compiler, and loads it."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

SWITCH = "LIGHTNING_ACCUM_COMPILE"
"""The environment variable that is 0 to do without the kernel."""

_SOURCE = Path(__file__).with_name("kernel")
_REAL = {torch.float32: "float", torch.float64: "double"}
# A compiler that does not know the first flags may know the next.
_FLAGS = (["-O3", "-march=native"], ["-O3", "-mcpu=native"], ["-O2"])
_SHARED = ["-std=gnu11", "-shared", "-fPIC", "-pthread", "-fno-math-errno", "-w"]
_SECONDS = 60

_failures: dict[torch.dtype, str] = {}


@cache
def library(dtype: torch.dtype) -> ctypes.CDLL | None:
    """Returns the kernel for a dtype, which is built if this machine has not built it before.

    Args:
        dtype: the dtype of the computation.

    Returns:
        The loaded library; ``None`` for other dtypes than float32 and float64, and if it is
        switched off or cannot be built.
    """
    if dtype not in _REAL:
        return None
    try:
        return _load(_built(_REAL[dtype]))
    except _Unavailable as reason:
        _failures[dtype] = str(reason)
    except OSError as error:
        _failures[dtype] = f"it could not be built or loaded ({error})"
    return None


def why_not() -> str | None:
    """Returns why there is no kernel; ``None`` if there is one, or none was needed."""
    return next(iter(_failures.values()), None)


class _Unavailable(Exception):
    """Says why there is no kernel."""


def _built(real: str) -> Path:
    """Returns the file of the built kernel."""
    if os.environ.get(SWITCH, "1") == "0":
        raise _Unavailable(f"{SWITCH}=0 switches it off")
    if sys.platform == "win32":
        raise _Unavailable("it is not built on Windows")
    compiler = _compiler()
    stat = os.stat(compiler[0])
    code = (file.read_text() for file in sorted(_SOURCE.glob("*.[ch]")))
    made_by = (*compiler, str(stat.st_mtime_ns), str(stat.st_size), repr((_FLAGS, _SHARED)))
    text = "\0".join([*code, real, *made_by, platform.platform(), _cpu()])
    name = f"kernel-{real}-{hashlib.sha256(text.encode()).hexdigest()[:20]}.so"
    for folder in _folders():
        if (folder / name).exists():
            return folder / name
    errors = "no folder for it can be written to"
    for folder in _folders():
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(suffix=".so", dir=folder)
        except OSError:
            continue
        os.close(handle)
        try:
            errors = _compile([*compiler, f"-DREAL={real}"], temporary)
            if not errors:
                os.replace(temporary, folder / name)  # processes that start together do not meet
                return folder / name
        finally:
            Path(temporary).unlink(missing_ok=True)
    raise _Unavailable(f"the C compiler `{shlex.join(compiler)}` failed ({errors})")


def _compile(command: list[str], target: str) -> str:
    """Compiles the kernel; returns the last line of the errors, empty if there are none."""
    errors = ""
    for flags in _FLAGS:
        try:
            done = subprocess.run(
                [*command, *flags, *_SHARED, *map(str, sorted(_SOURCE.glob("*.c"))), "-o", target],
                capture_output=True, text=True, timeout=_SECONDS, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"it takes more than {_SECONDS} s"
        if done.returncode == 0:
            return ""
        errors = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return errors


def _compiler() -> list[str]:
    """Returns the command of the C compiler: that in the environment variable CC, or the first."""
    named = shlex.split(os.environ.get("CC", ""))
    for command in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        found = shutil.which(command[0])
        if found:
            return [found, *command[1:]]
    raise _Unavailable(
        f"no C compiler `{named[0]}` was found" if named else "there is no C compiler"
    )


def _folders() -> list[Path]:
    """Returns folders of this user for built kernels: the cache, or one among temporary files."""
    user = getattr(os, "getuid", int)()
    cache_home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folders = [Path(cache_home), Path(tempfile.gettempdir()) / f"lightning_accum-{user}"]
    return [folder / "lightning_accum" for folder in folders if _is_own(folder, user)]


def _is_own(folder: Path, user: int) -> bool:
    """Returns whether nobody else has put a folder there, whose files would be loaded."""
    try:
        return folder.stat().st_uid in (user, 0)
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _cpu() -> str:
    """Returns what tells machines apart that share a home, but not all instructions."""
    try:
        lines = Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    kept = ("model name", "flags", "Features", "CPU part", "isa")
    return "\n".join(line for line in lines if line.startswith(kept))


def _load(path: Path) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(path))
    loaded.count_events.restype = ctypes.c_int64
    loaded.count_ones.restype = ctypes.c_int64
    loaded.find_events.restype = ctypes.c_int64
    loaded.make_step.restype = ctypes.c_double
    loaded.record_step.restype = ctypes.c_int64
    return loaded
