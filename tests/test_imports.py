"""Who imports whom, read from the sources."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import lightning_accum

ROOT = Path(lightning_accum.__file__).parent
# From the bottom up. Those on one line may not know of each other, but for the optimizer that
# applies what updaters hold.
LAYERS = (
    {"_compat", "_checks", "_metric", "_state"},
    {"functional"},
    {"updates", "observe", "accumulators"},
    {"optim"},
    {"nn"},
    {"learn"},
    {"metrics"},
    {"callbacks"},
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
METRICS = {"_metric.py", "metrics", "accumulators", "callbacks"}
HEAVY = {"lightning", "pytorch_lightning", "tensorboard", "jsonargparse"}
FILES = sorted(ROOT.rglob("*.py"))
PACKAGES = ["lightning_accum", *(m.name for m in pkgutil.iter_modules([str(ROOT)]) if m.ispkg)]


def imported(path: Path) -> set[str]:
    """The absolute names of what a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def part(name: str) -> str:
    """The part of this package that an absolute name is in."""
    return name.split(".")[1]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_go_strictly_down(path):
    relative = path.relative_to(ROOT)
    if relative.name == "__init__.py" and len(relative.parts) == 1:
        return
    own = relative.parts[0].removesuffix(".py")
    for name in imported(path):
        if name.startswith("lightning_accum.") and part(name) != own:
            assert RANK[part(name)] < RANK[own], f"{relative} should not import {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_only_callbacks_import_lightning(path):
    if path.relative_to(ROOT).parts[0] != "callbacks":
        assert not {name.split(".")[0] for name in imported(path)} & HEAVY
    if path.relative_to(ROOT).parts[0] not in METRICS:
        assert not any(name.startswith("torchmetrics") for name in imported(path))


def test_every_part_has_its_place():
    parts = {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}
    assert parts - {"__init__"} <= set(RANK)


def test_importing_the_package_does_not_import_lightning():
    code = (
        "import sys, lightning_accum, lightning_accum.nn, lightning_accum.optim;"
        f"found = {sorted(HEAVY | {'torchmetrics'})!r};"
        "sys.exit(', '.join(name for name in found if name in sys.modules) or None)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", PACKAGES)
def test_all_names_resolve_once_and_in_order(name):
    if name == "callbacks":
        pytest.importorskip("lightning")
    package = "lightning_accum" if name == "lightning_accum" else f"lightning_accum.{name}"
    module = importlib.import_module(package)
    for public in module.__all__:
        assert getattr(module, public) is not None
        assert not public.startswith("_")
    assert len(set(module.__all__)) == len(module.__all__)
    assert module.__doc__
