"""Runs examples and keeps what they print, for the gallery: ``docs/outputs/NAME.txt``.

The first line of a file is the command, so that the page shows how its output was made. Pictures
are drawn into a temporary folder: those of ``docs/pictures`` are made on purpose.

    .venv/bin/python scripts/record.py [NAME ...] [--short] [--seconds 600]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from _run import run_script

ROOT = Path(__file__).resolve().parent.parent
# An example without a default: LightningCLI's subcommand and what it is to do.
ARGUMENTS = {
    "cnn_optimizers": (
        "fit",
        "--optimizer=lightning_accum.optim.AdaBelief",
        "--optimizer.lr=1e-3",
        "--trainer.enable_progress_bar=false",
    )
}


def record(script: Path, arguments: tuple[str, ...], seconds: float) -> bool:
    """Writes what a script prints to stdout; returns whether it came to its end."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        result = run_script(script, arguments, folder, seconds)
    if result is None:
        return False
    if result.returncode:
        print(f"{script.stem}: exit {result.returncode}\n{result.stderr}", flush=True)
        return False
    keep(script, arguments, result.stdout)
    print(f"{script.stem}: {time.perf_counter() - start:.1f} s", flush=True)
    return True


def keep(script: Path, arguments: Iterable[str], printed: str) -> None:
    """Writes the command of a script and what it printed."""
    lines = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    text = f"$ {' '.join(('python', f'examples/{script.name}', *arguments))}\n{lines}\n"
    (ROOT / "docs" / "outputs" / f"{script.stem}.txt").write_text(text, encoding="utf-8")


def main() -> None:
    """Records the examples that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--short", action="store_true", help="the examples' short form")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each, at most")
    args = parser.parse_args()
    scripts = [p for p in sorted((ROOT / "examples").glob("*.py")) if not p.name.startswith("_")]
    unknown = set(args.names) - {p.stem for p in scripts}
    if unknown:
        listed = ", ".join(sorted(unknown))
        sys.exit(f"Expected names of examples. Found no example called {listed}.")
    scripts = [p for p in scripts if not args.names or p.stem in args.names]
    given = ("--short",) if args.short else ()
    done = [record(p, given or ARGUMENTS.get(p.stem, ()), args.seconds) for p in scripts]
    sys.exit(0 if all(done) else 1)


if __name__ == "__main__":
    main()
