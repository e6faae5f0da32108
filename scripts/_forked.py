"""Runs Python scripts in processes that start with torch, Lightning and this package imported.

Importing them takes seconds, and many scripts do little more. So one process imports them once and
does nothing else; each script runs in a fork of it, as `python SCRIPT` would. A script that needs
something before the imports, such as the `LOCAL_RANK` of its process, cannot run like this.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from multiprocessing import connection
from pathlib import Path

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["lightning_accum.callbacks", "sklearn.datasets"])


def _main(
    command: list[str], folder: str, environ: dict[str, str], out: str, errors: str | None
) -> None:
    """Makes a fork what a new process of Python would be, and runs the script in it."""
    for stream, file in ((1, out), (2, errors or out)):
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND)
        os.dup2(descriptor, stream)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.argv = command
    sys.path.insert(0, str(Path(command[0]).parent))
    import torch

    torch.set_num_threads(1)
    runpy.run_path(command[0], run_name="__main__")


class Forked:
    """A script that has been started.

    Args:
        script: the script.
        arguments: its arguments.
        folder: where it runs; here if ``None``.
        together: whether its errors stand in ``stdout``, where they came.
    """

    def __init__(
        self,
        script: str | os.PathLike[str],
        arguments: Iterable[object] = (),
        folder: str | os.PathLike[str] | None = None,
        together: bool = False,
    ) -> None:
        where = os.path.abspath(folder or os.curdir)
        self.args = [os.path.join(where, script), *map(str, arguments)]
        self._texts = tempfile.TemporaryDirectory()
        names = ["out"] if together else ["out", "errors"]
        self._files = [Path(self._texts.name) / name for name in names]
        for file in self._files:
            file.touch()
        out, errors, *_ = [*map(str, self._files), None]
        env = {**os.environ, "MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1"}
        self._process = FORKS.Process(target=_main, args=(self.args, where, env, out, errors))
        self._process.start()
        self.sentinel = self._process.sentinel

    def wait(self, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
        """Returns how it ended and what it printed; kills it if it takes longer."""
        self._process.join(seconds)
        late = self._process.is_alive()
        if late:
            self._process.kill()
            self._process.join()
        out, errors, *_ = [*(file.read_text(encoding="utf-8") for file in self._files), ""]
        self._texts.cleanup()
        if late:
            raise subprocess.TimeoutExpired(self.args, seconds or 0.0, out, errors)
        return subprocess.CompletedProcess(self.args, self._process.exitcode or 0, out, errors)

    def kill(self) -> None:
        """Kills it if it still runs."""
        self._process.kill()
        self._process.join()
        self._texts.cleanup()


def first_to_end(started: Iterable[Forked]) -> Forked:
    """Waits until one of these scripts has ended, and returns it."""
    by_sentinel = {script.sentinel: script for script in started}
    return by_sentinel[connection.wait(by_sentinel)[0]]


def run_together(started: list[Forked], seconds: float) -> list[subprocess.CompletedProcess[str]]:
    """Waits for scripts that wait for each other; kills all if one of them takes longer."""
    try:
        return [script.wait(seconds) for script in started]
    finally:
        for script in started:
            script.kill()
