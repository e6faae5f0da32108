"""Breaks single lines of the package, a random sample, and lists those that no test notices.

All tests run once, with coverage, to learn which tests run which line and how long they take. Each
broken line is then tried in a copy of the checkout, with the quickest of the tests that run it; a
line that runs when the package is imported, with the tests in the folder of the same name. They run
in forks of a process that has imported torch and Lightning, up to a limit of processor time. With
``--whole``, all tests run on what those let pass. A line that survives is equivalent to the one
that it replaces, or a test is missing. The results are kept in ``.mutants.jsonl``: a run that was
cut off goes on from there, and ``--again`` tries the survivors again.

    .venv/bin/python scripts/mutate.py --sample 200
    .venv/bin/python scripts/mutate.py --sample 200 --again --whole
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import multiprocessing
import os
import queue
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

from coverage import CoverageData

ROOT = Path(__file__).resolve().parent.parent
PYTEST = ("-q", "--tb=no", "--no-header", "-p", "no:cacheprovider")
SECONDS = 20.0  # that the tests of a line may take, as they took when nothing was broken
LIMIT = 120  # seconds of processor time, for what never ends
FORKS = multiprocessing.get_context("forkserver")

PAIRS = (
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.Is, ast.IsNot)),
    *((ast.In, ast.NotIn), (ast.Add, ast.Sub), (ast.Mult, ast.Div), (ast.And, ast.Or)),
    *((ast.BitAnd, ast.BitOr), (ast.Mod, ast.Mult), (ast.FloorDiv, ast.Mult), (ast.Pow, ast.Mult)),
)
SWAPS: dict[type, Any] = {**{b: a for a, b in reversed(PAIRS)}, **dict(PAIRS)}
# Annotations and the messages of errors change nothing that is computed.
SKIPPED = {"annotation", "returns", "decorator_list", "exc", "msg"}
PRINTED = ("__repr__", "extra_repr")


class Mutant(NamedTuple):
    """A broken line: ``after`` in place of ``before``."""

    file: str
    line: int
    before: str
    after: str

    @property
    def folder(self) -> str:
        """The folder within the package; empty for the package's own files."""
        return "/".join(Path(self.file).parts[1:-1])


def replacements(node: Any) -> Iterator[tuple[Any, ast.AST]]:
    """Gives each part of this syntax tree that can be broken, and what to put in its place."""
    if isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPS:
        yield node, type(node)(**{**vars(node), "op": SWAPS[type(node.op)]()})
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        ops = [SWAPS[type(node.ops[0])](), *node.ops[1:]]
        yield node, ast.Compare(node.left, ops, node.comparators)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.Not, ast.USub)):
        yield node, node.operand
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        value = node.value
        yield node, ast.Constant(not value if isinstance(value, bool) else value + 1)
    if isinstance(node, (ast.If, ast.While, ast.IfExp)):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)
    if isinstance(node, ast.Return) and node.value is not None:
        yield node, ast.Return(ast.Constant(None))
    called = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if called or isinstance(node, (ast.Assign, ast.AugAssign, ast.Raise, ast.Delete)):
        yield node, ast.Pass()
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            told = isinstance(child, ast.JoinedStr) or getattr(child, "name", "") in PRINTED
            if isinstance(child, ast.AST) and name not in SKIPPED and not told:
                yield from replacements(child)


def mutants(path: Path) -> Iterator[Mutant]:
    """Gives the broken lines of a file."""
    text = path.read_text(encoding="utf-8")
    for node, other in replacements(ast.parse(text)):
        if node.lineno == node.end_lineno:
            before = text.splitlines()[node.lineno - 1]
            raw, new = before.encode(), ast.unparse(ast.fix_missing_locations(other))
            if isinstance(other, ast.expr) and not isinstance(other, ast.Constant):
                new = f"({new})"
            after = (raw[: node.col_offset] + new.encode() + raw[node.end_col_offset :]).decode()
            if after != before:
                yield Mutant(path.relative_to(ROOT).as_posix(), node.lineno, before, after)


def choose(folders: list[str], sample: int, seed: int) -> list[Mutant]:
    """Draws the sample; each line is in it at most once."""
    paths = sorted((ROOT / "lightning_accum").rglob("*.py"))
    found = [m for path in paths for m in mutants(path) if not folders or m.folder in folders]
    random.Random(seed).shuffle(found)
    return list({(m.file, m.line): m for m in found}.values())[:sample]


class Coverage:
    """Which tests run which line, and how long each test takes.

    Args:
        data: what coverage recorded of all tests, each in a context of its own.
        report: pytest's report of the same run, in the format of JUnit.
    """

    def __init__(self, data: Path, report: Path) -> None:
        self.data = CoverageData(str(data))
        self.data.read()
        self.files = {
            name.partition("/lightning_accum/")[2]: name
            for name in sorted(self.data.measured_files())
        }
        cases = ElementTree.parse(report).iter("testcase")
        self.seconds = {(c.get("classname"), c.get("name")): float(c.get("time", 0)) for c in cases}
        self.lines: dict[str, dict[int, list[str]]] = {}

    def time(self, test: str) -> float:
        """Returns the seconds that a test took."""
        path, *classes, name = re.split("::(?![^[]*])", test)
        owner = ".".join([path.removesuffix(".py").replace("/", "."), *classes])
        return self.seconds.get((owner, name), SECONDS)

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Returns the tests that run its line, the quickest of each file first."""
        name = mutant.file.partition("/")[2]
        if name not in self.lines:
            self.lines[name] = self.data.contexts_by_lineno(self.files.get(name, ""))
        ran = self.lines[name].get(mutant.line, [])
        tests = sorted({context.partition("|")[0] for context in ran} - {""}, key=self.time)
        turns: Counter[str] = Counter()
        order = []
        for test in tests:
            path = test.partition("::")[0]
            turns[path] += 1
            order.append((turns[path], mutant.folder not in path, self.time(test), test))
        chosen, left = [], SECONDS
        for *_, seconds, test in sorted(order):
            left -= seconds + 0.01
            if left > 0 or not chosen:
                chosen.append(test)
        return chosen or namesakes(mutant)


def namesakes(mutant: Mutant) -> list[str]:
    """Returns the tests of its folder, or of the next above, the namesakes of its file first."""
    stem = Path(mutant.file).stem.strip("_")
    files: list[Path] = []
    for folder in (Path(mutant.folder), *Path(mutant.folder).parents):
        pattern = "**/test_*.py" if folder.name else "test_*.py"
        files = files or sorted((ROOT / "tests" / folder).glob(pattern))
    files.sort(key=lambda path: stem not in path.name)
    return [path.relative_to(ROOT).as_posix() for path in files]


def run_tests(copy: Path, arguments: list[str], limit: int) -> None:
    """Runs pytest in a fork, as a process group of its own."""
    os.setsid()
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit))
    os.chdir(copy)
    os.environ.update(PYTHONPATH=str(copy), OMP_NUM_THREADS="1", MPLBACKEND="Agg")
    sys.path.insert(0, str(copy))
    sys.argv = ["pytest"]
    import pytest

    sys.exit(pytest.main([*PYTEST, *arguments]))


def run(copy: Path, arguments: list[str], limit: int) -> str:
    """Runs pytest in a copy of the checkout; returns "passed", "failed" or "timeout"."""
    process = FORKS.Process(target=run_tests, args=(copy, arguments, limit))
    process.start()
    process.join(10 * limit)
    code = process.exitcode
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)  # and what the tests started
    process.join()
    if code in (None, -signal.SIGXCPU, -signal.SIGKILL):
        return "timeout"
    return "failed" if code else "passed"


def try_out(mutant: Mutant, tests: list[str], copy: Path, whole: bool) -> str:
    """Breaks the line in a copy, runs the tests, and mends the line."""
    path = copy / mutant.file
    cached = Path(cache_from_source(str(path)))  # which may look new enough: it goes by seconds
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    lines[mutant.line - 1] = mutant.after
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        cached.unlink(missing_ok=True)
        result = run(copy, ["-x", *tests], LIMIT)
        return run(copy, ["-x", "tests"], 20 * LIMIT) if whole and result == "passed" else result
    finally:
        path.write_text(text, encoding="utf-8")
        cached.unlink(missing_ok=True)


def measure(copy: Path, data: Path, report: Path) -> Coverage:
    """Runs all tests with coverage, unless an earlier call has; they have to pass."""
    if not (data.exists() and report.exists()):
        print("Running all tests once, to learn which tests run which line.", flush=True)
        options = ["--numprocesses=2", "--cov=lightning_accum", "--cov-branch"]
        options += ["--cov-context=test", "--cov-report=", f"--junitxml={report}", "tests"]
        os.environ["COVERAGE_FILE"] = str(data)
        if run(copy, options, 60 * LIMIT) != "passed":
            data.unlink(missing_ok=True)
            sys.exit("Expected the tests to pass with no line broken. They do not.")
    return Coverage(data, report)


def make_copy(folder: Path) -> Path:
    """Copies the checkout, without what git ignores."""
    listed = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(lambda name: (ROOT / name).is_file(), names.splitlines()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    kernel = Path("lightning_accum/sparse/kernel")
    for path in (ROOT / kernel).glob("kernel.*"):
        shutil.copy(path, folder / kernel / path.name)
    return folder


def try_all(left: list[Mutant], args: argparse.Namespace) -> Iterator[tuple[Mutant, str]]:
    """Gives each mutant and its result, as soon as it is known."""
    with tempfile.TemporaryDirectory() as home, ThreadPoolExecutor(args.workers) as pool:
        free: queue.Queue[Path] = queue.Queue()
        for index in range(args.workers):
            free.put(make_copy(Path(home) / str(index)))
        data = args.results.with_suffix(".coverage")
        coverage = measure(Path(home) / "0", data, args.results.with_suffix(".xml"))

        def one(mutant: Mutant, tests: list[str]) -> str:
            copy = free.get()
            try:
                return try_out(mutant, tests, copy, args.whole)
            finally:
                free.put(copy)

        futures = {pool.submit(one, mutant, coverage.tests_of(mutant)): mutant for mutant in left}
        for future in as_completed(futures):
            yield futures[future], future.result()


def main(args: argparse.Namespace) -> None:
    """Tries what has no result yet; prints the survivors, and the share that was caught."""
    chosen = choose(args.folders, args.sample, args.seed)
    results: dict[Mutant, str] = {}
    if args.results.exists():
        for line in args.results.read_text(encoding="utf-8").splitlines():
            *fields, result = json.loads(line)
            results[Mutant(*fields)] = result
    left = [m for m in chosen if results.get(m, "") == ("passed" if args.again else "")]
    with args.results.open("a", encoding="utf-8") as out:
        for number, (mutant, result) in enumerate(try_all(left, args), 1):
            results[mutant] = result
            print(json.dumps([*mutant, result]), file=out, flush=True)
            print(f"{number}/{len(left)} {result} {mutant.file}:{mutant.line}", flush=True)

    survivors = [mutant for mutant in chosen if results[mutant] == "passed"]
    for mutant in sorted(survivors):
        print(f"\n{mutant.file}:{mutant.line}\n- {mutant.before.strip()}\n+ {mutant.after.strip()}")
    total, missed = (Counter(mutant.folder for mutant in some) for some in (chosen, survivors))
    print(f"\n{len(chosen) - len(survivors)} of {len(chosen)} caught:")
    for folder, number in sorted(total.items()):
        print(f"  {folder or '(top)':12} {number - missed[folder]} of {number}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", metavar="FOLDER", help="of the package; or all")
    parser.add_argument("--sample", type=int, default=200, help="number of lines")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("--whole", action="store_true", help="try all tests on survivors")
    parser.add_argument("--again", action="store_true", help="try the survivors again")
    parser.add_argument("--results", type=Path, default=ROOT / ".mutants.jsonl", metavar="FILE")
    FORKS.set_forkserver_preload(["pytest", "lightning.pytorch", "torchmetrics"])
    main(parser.parse_args())
