"""Who imports whom, read from the sources."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest
from subtests import turns

import lightning_accum

ROOT = Path(lightning_accum.__file__).parent
# From the bottom up. Packages on one line do not import each other.
LAYERS = (
    {"_compat", "_checks", "_training_events", "_extra_state"}, {"_checked_state"},
    {"_persistent_metric"}, {"functional", "plot"},
    {"sparse", "distributed"}, {"_show_versions"}, {"updates", "observe", "accumulators"},
    {"optim"}, {"nn"}, {"engine"}, {"cells"}, {"rules", "nir"}, {"metrics", "health"},
    {"callbacks"},
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}
METRICS = {"_persistent_metric", "metrics", "accumulators", "callbacks"}
HEAVY = {"lightning", "pytorch_lightning", "tensorboard", "jsonargparse"}
FILES = sorted(ROOT.rglob("*.py"))
MODULES = (each.name for each in pkgutil.iter_modules([str(ROOT)]))
PACKAGES = ["lightning_accum", *(name for name in MODULES if name == "_compat" or name[0] != "_")]


def imported(path):
    """The absolute names of what a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


IMPORTED = {path: imported(path) for path in FILES}
OWN = {path: path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES}


def part(name):
    """The part of this package that an absolute name is in."""
    return name.split(".")[1]


def test_imports_go_strictly_down():
    assert {*OWN.values()} - {"__init__"} <= set(RANK)
    found = [
        f"{path.relative_to(ROOT)} should not import {name}"
        for path, names in IMPORTED.items()
        for name in names
        if OWN[path] != "__init__" and name.startswith("lightning_accum.")
        if part(name) != OWN[path] and not RANK[part(name)] < RANK[OWN[path]]
    ]
    assert not found


def files_imported(path):
    """The files of this package that a file imports, but for a package's own ``__init__``."""
    found = set()
    for name in IMPORTED[path]:
        parts = name.split(".")
        while parts and parts[0] == "lightning_accum":
            place = ROOT.joinpath(*parts[1:])
            if place.with_suffix(".py").is_file():
                found.add(place.with_suffix(".py"))
                break
            if (place / "__init__.py").is_file():
                found.add(place / "__init__.py")
                break
            parts.pop()
    return found - {path}


def test_no_file_imports_itself_by_way_of_others():
    ahead = {path: files_imported(path) for path in FILES}
    while leaves := [path for path, names in ahead.items() if not names & ahead.keys()]:
        for path in leaves:
            del ahead[path]
    assert not ahead, "in a circle, or above one"


def test_only_callbacks_import_lightning():
    for path, names in IMPORTED.items():
        first = {name.split(".")[0] for name in names}
        assert OWN[path] == "callbacks" or not first & HEAVY, path
        assert OWN[path] in METRICS or "torchmetrics" not in first, path


def test_callbacks_know_an_observer_and_not_its_checks():
    for path, names in IMPORTED.items():
        if OWN[path] == "callbacks" and path.name != "__init__.py":
            found = [name for name in names if name.startswith("lightning_accum.health")]
            assert not found or path.name == "update_monitor.py", (
                path
            )  # which puts numbers into words


def test_a_plain_program_imports_no_more_than_it_needs_and_starts_and_writes_nothing():
    """What is heavy is imported when it is used."""
    code = f"""
import sys, torch
changes = []
def watch(event, args):
    writes = event == "open" and (args[2] or 0) & 3  # O_WRONLY or O_RDWR
    if writes or event in ("subprocess.Popen", "os.posix_spawn", "os.exec", "os.fork", "os.mkdir"):
        changes.append((event, args))
sys.addaudithook(watch)
import lightning_accum as la
assert {{"callbacks", "plot", "UpdateMonitor", "STDP"}} <= set(dir(la))
assert not {{"sparse", "distributed", "annotations"}} & set(dir(la))
import lightning_accum.nn, lightning_accum.optim, lightning_accum.plot
fc, neuron = torch.nn.Linear(4, 3, bias=False), la.nn.LIF(3)
rule = la.RuleTrainer(la.STDP(0.1, -0.1))
rule.register_cell("cell", la.Cell(fc, neuron))
neuron(fc(torch.ones(2, 4)))
rule()
rule.update()
assert not changes, changes
early = {HEAVY | {"torchmetrics", "matplotlib"}!r} & {{*sys.modules}}
assert not early, early
assert la.UpdateMonitor is la.callbacks.UpdateMonitor; la.metrics.UpdateStatistics
# torch's optimizers keep their short names: jsonargparse finds `--optimizer=Adam` among the
# subclasses that are imported
below = lambda kind: {{kind}}.union(*map(below, kind.__subclasses__()))
kinds = {{each for each in below(torch.optim.Optimizer) if "accum" in each.__module__}}
taken = {{each.__name__ for each in kinds}} & {{*vars(torch.optim)}}
assert kinds and not taken, taken
from lightning_accum.callbacks._logging import logger
logger.info("a summary is printed by a plain program")
"""
    done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "a summary is printed by a plain program\n")


def test_a_name_that_does_not_exist_is_refused():
    with pytest.raises(AttributeError, match="`UpdatMonitor`: did you mean `UpdateMonitor`"):
        lightning_accum.UpdatMonitor  # noqa: B018


def test_optimizers_that_are_imported_late_are_listed_and_found():
    optim = importlib.import_module("lightning_accum.optim")
    assert set(optim.__all__) <= set(dir(optim))
    names = {}
    exec("from lightning_accum.optim import *", names)
    assert set(optim.__all__) <= set(names)
    with pytest.raises(AttributeError, match=r"'lightning_accum.optim' has no attribute 'Adm'"):
        optim.Adm  # noqa: B018


@turns("name", PACKAGES)
def test_all_names_resolve_once(name):
    package = "lightning_accum" if name == "lightning_accum" else f"lightning_accum.{name}"
    module = importlib.import_module(package)
    for public in module.__all__:
        assert getattr(module, public) is not None
        assert not public.startswith("_")
    assert len(set(module.__all__)) == len(module.__all__)
    assert module.__doc__
