"""Runs every script of a folder, two at a time, with the same arguments.

Fails if the folder holds no script, or if any of them fails, after having run them all. A file
whose name starts with an underscore is a helper of the others, and is not run.

    python scripts/run_each.py examples --short
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from _forked import Forked, first_to_end

TOGETHER = 2  # each on one thread


def report(script: Forked, started: float) -> bool:
    """Prints a script's output and the seconds that it took; returns whether it failed."""
    result = script.wait()
    end = f"--- {time.perf_counter() - started:.1f} s, exit {result.returncode}"
    print(f"--- {' '.join(result.args)}\n{result.stdout}{end}", flush=True)
    return result.returncode != 0


def main(folder: str, *args: str) -> None:
    """Runs the scripts and says which of them failed."""
    scripts = sorted(p for p in Path(folder).glob("*.py") if not p.name.startswith("_"))
    if not scripts:
        sys.exit(f"Expected at least one script in `{folder}/`. Found none.")
    running: dict[Forked, float] = {}
    waiting, failed = list(scripts), []
    while waiting or running:
        while waiting and len(running) < TOGETHER:
            running[Forked(waiting.pop(0), args, together=True)] = time.perf_counter()
        ended = first_to_end(running)
        if report(ended, running.pop(ended)):
            failed.append(Path(ended.args[0]).name)
    if failed:
        sys.exit(f"{len(failed)} of {len(scripts)} failed in `{folder}/`: {', '.join(failed)}")
    print(f"all {len(scripts)} scripts in `{folder}/` ran", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
