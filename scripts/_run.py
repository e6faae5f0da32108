"""Runs a Python script in a process of its own, for the scripts of this folder."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path


def run_script(
    script: Path,
    arguments: Iterable[str],
    folder: str | None = None,
    seconds: float | None = None,
    stderr: int = subprocess.PIPE,
) -> subprocess.CompletedProcess[str] | None:
    """Runs a script on one thread; its figures are drawn to files, also on a machine with a screen.

    Args:
        script: the script.
        arguments: its arguments.
        folder: where it runs; here if ``None``.
        seconds: how long it may take.
        stderr: where its errors go, as `subprocess.run` takes it.

    Returns:
        What it printed and how it ended; ``None``, after a line that says so, if it took too long.
    """
    environ = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
    try:
        return subprocess.run(
            [sys.executable, str(script.resolve()), *arguments],
            cwd=folder,
            env={**environ, "PL_TRAINER_ENABLE_PROGRESS_BAR": "False"},
            check=False,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        print(f"{' '.join((script.stem, *arguments))}: took longer than {seconds:g} s", flush=True)
        return None
