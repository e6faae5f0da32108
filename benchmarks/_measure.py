"""What the benchmarks share: time, memory, the machine, and Markdown."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TextIO

import torch

ROOT = Path(__file__).resolve().parent.parent


def timed(call: Callable[[], object]) -> float:
    """Milliseconds of a call."""
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def middle(times: Sequence[float], digits: int = 1) -> str:
    """The median, with the quartiles in brackets if seven turns or more can tell them."""
    if len(times) < 7:
        return f"{statistics.median(times):.{digits}f}"
    low, median, high = statistics.quantiles(times, n=4)
    return f"{median:.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def seconds_of(runs: dict[str, list[dict[str, Any]]], ms: int) -> dict[str, float]:
    """Median seconds for a biological second, of runs of so many ms by name."""
    return {
        name: 1000 / ms * statistics.median(run["seconds"] for run in found)
        for name, found in runs.items()
    }


def bandwidth(elements: int = 10_000_000, repeats: int = 15) -> float:
    """GB/s of ``a = b + s * c`` in float32, what memory gives at its best."""
    a, b, c = (torch.ones(elements) for _ in range(3))
    times = [timed(lambda: torch.add(b, c, alpha=2.0, out=a)) for _ in range(repeats)]
    return 3 * 4 * elements / statistics.median(times) / 1e6


def resident(field: str) -> int:
    """KiB of this process that the kernel reports, such as ``VmHWM``, the peak."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field))


def print_peak(call: Callable[[], object]) -> None:
    """Prints the MB that a call adds at its peak: the kernel's own, set back before it."""
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmHWM")
    call()
    print((resident("VmHWM") - before) / 1024)


def peak_memory(script: str, *args: str) -> float:
    """MB that ``script --memory-of *args`` prints in a process of its own; NaN but on Linux."""
    if not Path("/proc/self/clear_refs").exists():
        return float("nan")
    command = [sys.executable, script, "--memory-of", *args]
    env = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=env)
    return float(done.stdout)


def malloc() -> list[str]:
    """The settings of glibc's malloc, which decide what fresh memory costs."""
    return [f"{k}={v}" for k, v in sorted(os.environ.items()) if k.startswith("MALLOC_")]


def machine() -> str:
    """Processor, cores, Python, torch and commit; the same for all benchmarks of a run."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = lines[0].split(":")[1].strip() if lines else model
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--exclude=*"]
    commit = subprocess.run(git, capture_output=True, text=True, check=False).stdout.strip()
    return (
        f"{model}, {os.cpu_count()} cores, {torch.backends.cpu.get_cpu_capability()};"
        f" {platform.system()}, Python {platform.python_version()}, torch {torch.__version__};"
        f" commit {commit or 'unknown'}"
    )


def setting(*packages: str) -> str:
    """Threads, versions of packages, and settings of malloc, in a line."""
    threads = torch.get_num_threads()
    count = f"{threads} thread{'s' * (threads > 1)}"
    return ", ".join([count, *map(version, packages), *malloc()])


def version(package: str) -> str:
    try:
        return f"{package} {importlib.metadata.version(package)}"
    except importlib.metadata.PackageNotFoundError:
        return f"{package} not installed"


def table(head: Iterable[str], rows: Iterable[Iterable[str]], file: TextIO | None = None) -> None:
    """Prints a table in Markdown."""
    head = list(head)
    print(f"| {' | '.join(head)} |", file=file)
    print(f"|{'---|' * len(head)}", file=file)
    for row in rows:
        print(f"| {' | '.join(row)} |", file=file)


def goal(told: str) -> None:
    """Prints one such thing that this package has set itself to reach."""
    print(f"\n{told}\n", file=sys.stderr, flush=True)


def goals(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    """Prints what this package has set itself to reach: to the developer, not to the page."""
    print(f"\n{title}\n", file=sys.stderr)
    table(head, rows, sys.stderr)
    print(file=sys.stderr, flush=True)
