"""Runs every script of a folder, one after the other, with the same arguments.

Fails where the folder holds no script, or where any of them fails, after having run them all.
A file whose name starts with an underscore is a helper of the others, and is not run.

    python scripts/run_each.py examples --short
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path


def main(folder: str, *args: str) -> None:
    """Runs the scripts and prints the seconds that each took."""
    scripts = sorted(p for p in Path(folder).glob("*.py") if not p.name.startswith("_"))
    if not scripts:
        sys.exit(f"Expected at least one script in `{folder}/`. Found none.")
    # Figures are drawn to files alone, also on a machine with a screen.
    environ = {**os.environ, "MPLBACKEND": "Agg"}
    failed = []
    for script in scripts:
        print(f"--- {script} {' '.join(args)}", flush=True)
        start = time.perf_counter()
        result = subprocess.run([sys.executable, str(script), *args], env=environ, check=False)
        if result.returncode != 0:
            failed.append(script.name)
        print(f"--- {time.perf_counter() - start:.1f} s, exit {result.returncode}", flush=True)
    if failed:
        sys.exit(f"{len(failed)} of {len(scripts)} failed in `{folder}/`: {', '.join(failed)}")
    print(f"all {len(scripts)} scripts in `{folder}/` ran", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
