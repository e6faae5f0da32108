"""Builds the compiled kernel from the sources in lightning_accum/sparse/kernel/, and beside them.

The library has each function for float and for double, and for several levels of a processor, of
which `lightning_accum.sparse.kernel_library` takes the best that runs. hatch_build.py calls this as
the package is built or installed; after an edit of the sources, call it by hand, or by
`make kernel`.

    python scripts/build_kernel.py

CC names another compiler than cc, gcc or clang; CFLAGS and LDFLAGS are added to what it is given.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "lightning_accum" / "sparse" / "kernel"
LIBRARY = SOURCES / "kernel.so"
RECORD = SOURCES / "kernel.json"
"""What the library was built from, and its checksum; or why there is none."""

FLAGS = ["-std=gnu11", "-O3", "-fPIC", "-pthread", "-fno-math-errno", "-w"]
# Tuned so, no loop is slower than with `-march=native` on a processor of another make.
AVX2 = ["-mtune=haswell", "-mavx2", "-mfma", "-mbmi", "-mbmi2", "-mpopcnt"]
AVX512 = [f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl")]
# In the order of `level.c`, which asks for what the flags allow.
LEVELS = {"baseline": [], "avx2": AVX2, "avx512": [*AVX2, *AVX512]}


class CannotBuild(Exception):
    """Says why."""


def build() -> str | None:
    """Builds the library; returns why it could not, ``None`` if it could."""
    files = sorted(SOURCES.glob("*.[ch]"))
    record: dict[str, object] = {"sources": checksum(*files)}
    reason = None
    with tempfile.TemporaryDirectory(prefix=".build-", dir=SOURCES) as folder:
        try:
            made = compiled([file for file in files if file.suffix == ".c"], Path(folder))
            record["library"] = checksum(made)
            os.replace(made, LIBRARY)
        except CannotBuild as error:
            record["missing"] = reason = str(error)
            LIBRARY.unlink(missing_ok=True)
        (Path(folder) / "record").write_text(json.dumps(record), encoding="utf-8")
        os.replace(Path(folder) / "record", RECORD)
    return reason


def checksum(*files: Path) -> int:
    """Returns a checksum of the contents of files."""
    return zlib.crc32(b"".join(file.read_bytes() for file in files))


def compiled(files: list[Path], folder: Path) -> Path:
    """Compiles every source for every dtype and level, and links all; returns the library."""
    if sys.platform == "win32":
        raise CannotBuild("it is not built on Windows")
    command = [*compiler(), *FLAGS, *words("CFLAGS")]
    levels = LEVELS if platform.machine() in ("x86_64", "AMD64") else {"baseline": []}
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    # What is not static gets a name of its own; what was overlooked here, the linker finds twice.
    functions = re.findall(r"^(?!static|typedef)\w+ (\w+)\(", text, re.MULTILINE)

    def compile_one(real: str, level: str) -> Iterator[Path]:
        place = folder / f"{real}_{level}"
        place.mkdir()
        names = [f"-D{name}={name}_{real}_{level}" for name in functions]
        run([*command, *levels[level], f"-DREAL={real}", *names, "-c", *map(str, files)], place)
        return place.glob("*.o")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        builds = [
            pool.submit(compile_one, r, level) for r in ("float", "double") for level in levels
        ]
    objects = [str(path) for each in builds for path in each.result()]
    run([*command, "-shared", *objects, *words("LDFLAGS"), "-lm", "-o", "kernel.so"], folder)
    return folder / "kernel.so"


def compiler() -> list[str]:
    """Returns the command of the C compiler: that in the environment variable CC, or the first."""
    named = words("CC")
    for command in [named] if named else [["cc"], ["gcc"], ["clang"]]:
        if shutil.which(command[0]):
            return command
    raise CannotBuild(
        f"no C compiler `{named[0]}` was found" if named else "no C compiler was found"
    )


def words(variable: str) -> list[str]:
    """Returns the words of an environment variable, as a shell reads them."""
    try:
        return shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise CannotBuild(f"`{variable}` cannot be read ({error})") from error


def run(command: list[str], folder: Path) -> None:
    """Runs the compiler in a folder."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except OSError as error:
        raise CannotBuild(f"the C compiler `{command[0]}` failed ({error})") from error
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise CannotBuild(f"the C compiler `{command[0]}` failed ({said})")


if __name__ == "__main__":
    reason = build()
    if reason is not None:
        sys.exit(f"The compiled kernel could not be built: {reason}.")
    print(f"Built {LIBRARY}.")
