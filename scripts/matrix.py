"""Runs the tests with other versions of Python and of what the package needs, a row of them each.

Every row gets an environment of its own under ``.matrix/``, which is removed again, for PyTorch may
bring gigabytes with it; what pip and pytest said stays beside it in ``NAME.log``. A Markdown table
of the results is printed at the end. A row whose Python or versions cannot be had is not tried, and
the table says so. Fails where a row does, or where none could be tried.

    python3 scripts/matrix.py                                      every row
    python3 scripts/matrix.py floors --tests tests/updates         one row, and some tests
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
FOLDER, VENV = ROOT / ".matrix", ROOT / ".venv"
SHOWN = ("torch", "lightning", "torchmetrics", "tensorboard", "numpy")


def floors(*names: str) -> tuple[str, ...]:
    """Returns pins of these distributions to the oldest versions that pyproject.toml allows."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return tuple(re.sub(">=", "==", re.findall(rf'"({name}>=[\d.]+)', text)[0]) for name in names)


class Row(NamedTuple):
    """One environment; one without a ``python`` is ``.venv`` with only the pins installed anew."""

    name: str
    python: str
    torch: str
    pins: tuple[str, ...] = ()


# Lightning 2.5.0 asks for a rich below 14, for its progress bar.
OLD = (*floors("lightning", "torchmetrics", "tensorboard"), "rich<14")
# What is not pinned is the newest that pip finds for that Python.
ROWS = (
    # Older versions of PyTorch are often found with NumPy 1.26.
    Row("floors", "3.10", floors("torch")[0], (*OLD, *floors("numpy"))),
    Row("py310", "3.10", "torch"),
    Row("py311", "3.11", "torch"),
    Row("py312", "3.12", "torch"),
    Row("py313", "3.13", "torch"),
    Row("lightning-2.5", "3.11", "torch==2.8.*", ("lightning==2.5.*",)),
    Row("ci-floors", "", "", OLD),
)


class NotTried(Exception):
    """A row cannot be tried, for this reason."""


def interpreter(version: str) -> str:
    """Returns the path of a Python of this version; raises `NotTried` where none runs."""
    # A version manager's stand-in may be found where the version itself is not to be had.
    found = shutil.which(f"python{version}" if version else str(VENV / "bin/python"))
    ask = [found or "", "-c", "import sys; print(sys.executable)"]
    asked = subprocess.run(ask, capture_output=True, text=True, check=False) if found else None
    if asked is None or asked.returncode != 0:
        raise NotTried(f"no {f'python{version}' if version else '.venv'} that runs")
    return asked.stdout.strip()


def install(row: Row, base: str, home: Path, log: Path) -> str:
    """Makes the environment, and returns the path of its Python; raises `NotTried`."""
    python = str(home / "bin" / "python")
    pip = [python, "-m", "pip", "install", "--quiet"]
    rest = [python, "scripts/install_environment.py", *row.pins, "--editable", ".[test]"]
    steps = [[*pip, row.torch], rest] if row.torch else [[*pip, "--no-deps", *row.pins]]
    with log.open("w", encoding="utf-8") as out:
        for command in [[base, "-m", "venv", "--clear", str(home)], *steps]:
            done = subprocess.run(command, cwd=ROOT, stdout=out, stderr=out, check=False)
            if done.returncode != 0:
                raise NotTried(f"`{' '.join(command[1:])}` failed, see {log.relative_to(ROOT)}")
    if not row.torch:  # what is not pinned is found behind what is
        (own,), (others,) = (each.glob("lib/python*/site-packages") for each in (home, VENV))
        (own / "others.pth").write_text(f"import site; site.addsitedir({str(others)!r})\n")
    return python


def versions(python: str) -> list[str]:
    """Returns the versions that are installed: Python's, and those of `SHOWN`."""
    code = (
        "import platform, sys; from importlib.metadata import version;"
        "print(platform.python_version(), *map(version, sys.argv[1:]))"
    )
    asked = subprocess.run([python, "-c", code, *SHOWN], capture_output=True, text=True, check=True)
    return asked.stdout.split()


def test(python: str, paths: Iterable[str], workers: int, log: Path) -> tuple[bool, list[str]]:
    """Runs the tests; returns whether they passed, and how many passed, skipped and failed."""
    command = [python, "-m", "pytest", "-p", "no:cacheprovider", "--numprocesses", str(workers)]
    command += ["--doctest-modules", *paths]
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    with log.open("a", encoding="utf-8") as out:
        done = subprocess.run(command, cwd=ROOT, env=environ, stdout=out, stderr=out, check=False)
    last = log.read_text(encoding="utf-8").rstrip().rpartition("\n")[2]
    counts = {what: int(n) for n, what in re.findall(r"(\d+) (passed|skipped|failed|error)", last)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    numbers = [counts.get("passed", 0), counts.get("skipped", 0), failed]
    return done.returncode == 0 and numbers[0] > 0, [str(n) for n in numbers]


def main(args: argparse.Namespace) -> None:
    """Tries the rows one after the other, and prints the table."""
    FOLDER.mkdir(exist_ok=True)
    lines, results = [], []
    for row in ROWS:
        if args.rows and row.name not in args.rows:
            continue
        print(f"--- {row.name}", flush=True)
        home, log, start = FOLDER / row.name, FOLDER / f"{row.name}.log", time.perf_counter()
        try:
            python = install(row, interpreter(args.python or row.python), home, log)
        except NotTried as why:
            lines.append([row.name, args.python or row.python, *[""] * 9, f"not tried: {why}"])
        else:
            installed = time.perf_counter()
            passed, counts = test(python, args.tests, args.workers, log)
            results.append(passed)
            seconds = f"{time.perf_counter() - installed:.0f}"
            if not passed:
                print(*log.read_text(encoding="utf-8").splitlines()[-50:], sep="\n")
            verdict = "passed" if passed else f"failed, see {log.relative_to(ROOT)}"
            lines.append([row.name, *versions(python), *counts, seconds, verdict])
        if not args.keep:
            shutil.rmtree(home, ignore_errors=True)
        print(f"--- {lines[-1][-1]}, {time.perf_counter() - start:.0f} s in all", flush=True)

    header = ["row", "Python", *SHOWN, "passed", "skipped", "failed", "seconds", "result"]
    for line in (header, ["---"] * len(header), *lines):
        print(f"| {' | '.join(line)} |")
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Runs the tests with other versions.")
    names = [row.name for row in ROWS]
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"of {', '.join(names)}; or all")
    parser.add_argument("--tests", nargs="+", default=["lightning_accum", "tests"], metavar="PATH")
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("--python", help="a version to use in place of the rows' own")
    parser.add_argument("--keep", action="store_true", help="leave the environments there")
    given = parser.parse_args()
    if unknown := set(given.rows) - set(names):
        parser.error(f"expected rows of {', '.join(names)}; found {', '.join(sorted(unknown))}")
    main(given)
