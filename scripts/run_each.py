"""Runs every script of a folder, two at a time, with the same arguments.

Fails if the folder holds no script, or if any of them fails, after having run them all. A file
whose name starts with an underscore is a helper of the others, and is not run.

    python scripts/run_each.py examples --short
"""

from __future__ import annotations

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from _run import run_script

TOGETHER = 2  # each on one thread


def run(script: Path, args: tuple[str, ...]) -> bool:
    """Runs a script, prints its output and the seconds that it took; returns whether it failed."""
    start = time.perf_counter()
    result = run_script(script, args, stderr=subprocess.STDOUT)
    assert result is not None  # there is no limit of time
    seconds = time.perf_counter() - start
    end = f"--- {seconds:.1f} s, exit {result.returncode}"
    print(f"--- {script} {' '.join(args)}\n{result.stdout}{end}", flush=True)
    return result.returncode != 0


def main(folder: str, *args: str) -> None:
    """Runs the scripts and says which of them failed."""
    scripts = sorted(p for p in Path(folder).glob("*.py") if not p.name.startswith("_"))
    if not scripts:
        sys.exit(f"Expected at least one script in `{folder}/`. Found none.")
    with ThreadPoolExecutor(TOGETHER) as pool:
        results = pool.map(lambda script: run(script, args), scripts)
        failed = [s.name for s, fails in zip(scripts, results, strict=True) if fails]
    if failed:
        sys.exit(f"{len(failed)} of {len(scripts)} failed in `{folder}/`: {', '.join(failed)}")
    print(f"all {len(scripts)} scripts in `{folder}/` ran", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
