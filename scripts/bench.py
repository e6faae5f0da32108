"""Runs benchmarks and writes what they print into one page, ``docs/measurements.md``.

A section for each: its heading and text are those of the script's docstring, then what it printed.
The machine stands at the top, and in sections that were made on another. Sections of benchmarks
that are not run, or that fail, stay as they are.

    python scripts/bench.py [competitors growth ...] [--page FILE] [-- ARGS]
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER, PAGE = ROOT / "benchmarks", ROOT / "docs" / "measurements.md"
FIRST = (
    "competitors",
    "every_step_competitors",
    "simulators",
    "bindsnet_workloads",
    "bound",
    "growth",
    "convolution",
    "end_to_end",
    "rule_costs",
)
HEAD = """# All measurements

`make bench` writes this page, and `make bench ARGS="competitors growth"` these two sections of it.
Times are medians, with quartiles in brackets if there were seven turns or more.
"""
UNPUBLISHED = (  # only printed
    *("choices", "kmeans_controls", "hook_cost", "own_rule", "plain_loops"),
    "hyperparameter_sensitivity",
)
AT = re.compile(r"^\*.+; commit \S+\*$", re.M)
MACHINE = "import sys; sys.path.insert(0, {!r}); import _measure; print(_measure.machine())"


def sections(page: Path) -> dict[str, str]:
    """The page's sections by benchmark, each from its mark to the next one's, with its machine."""
    if not page.exists():
        return {}
    head, *found = re.split(r"^<!-- (\w+) -->\n", page.read_text(encoding="utf-8"), flags=re.M)
    parts = {name: text.strip() for name, text in zip(found[::2], found[1::2], strict=True)}
    (common,) = AT.findall(head) or [""]
    return {
        name: text if AT.search(text) else f"{common}\n\n{text}" for name, text in parts.items()
    }


def filled(parts: dict[str, str]) -> str:
    """The page of these sections: the machine of the first is told at its top."""
    common = AT.findall(next(iter(parts.values())))[0]
    texts = [
        f"<!-- {name} -->\n{text.replace(common, '').strip()}\n" for name, text in parts.items()
    ]
    return "\n".join([HEAD, f"{common}\n", *texts])


def described(script: Path) -> str:
    """Heading and text from a script's docstring, but for how it is called."""
    text = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or script.stem
    first, _, rest = text.partition("\n")
    rest = re.sub(r"^ {4}python .*$", "", rest, flags=re.M).replace("``", "`").strip()
    return f"## {first.rstrip('.').replace('``', '`')}\n\n{rest}".strip()


def run(script: Path, args: list[str], machine: str) -> str | None:
    """The section of a benchmark, run now; ``None`` where it fails."""
    start = time.perf_counter()
    environ = {**os.environ, "MPLBACKEND": "Agg"}
    command = [sys.executable, str(script), *args]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - start
    print(f"--- {script.name}: {seconds:.0f} s, exit {done.returncode}", flush=True)
    if done.returncode:
        return None
    return f"*{machine}*\n\n{described(script)}\n\n{done.stdout.strip()}"


def main() -> None:
    """Runs what is asked for, and writes the page after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="all by default")
    parser.add_argument("--page", type=Path, default=PAGE)
    argv = sys.argv[1:]
    at = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:at])
    known = {p.stem: p for p in sorted(FOLDER.glob("*.py")) if not p.name.startswith("_")}
    unknown = set(args.names) - set(known)
    if unknown:
        sys.exit(f"Expected names of benchmarks, of {sorted(known)}. Found {sorted(unknown)}.")
    order = [*FIRST, *(name for name in known if name not in FIRST)]
    ask = [sys.executable, "-c", MACHINE.format(str(FOLDER))]
    told = subprocess.run(ask, capture_output=True, text=True, check=True)
    machine = told.stdout.strip()
    failed = []
    for name in order:
        if name not in (args.names or known):
            continue
        made = run(known[name], argv[at + 1 :], machine)
        if made is None:
            failed.append(name)
            continue
        if name in UNPUBLISHED:
            print(made)
            continue
        parts = {**sections(args.page), name: made}
        page = filled({each: parts[each] for each in order if each in parts})
        args.page.write_text(page, encoding="utf-8")
    if failed:
        sys.exit(f"Failed, and left as they were: {', '.join(failed)}")


if __name__ == "__main__":
    main()
