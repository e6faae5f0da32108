"""Each example runs in its short form, as the one file of its page, prints and draws."""

import ast
import re
import runpy
from collections import Counter
from pathlib import Path

import pytest
from _forked import Forked
from matplotlib.image import imread

ROOT = Path(__file__).parents[2]
one_file = runpy.run_path(str(ROOT / "docs/_ext/one_file.py"))["one_file"]

# These run in tests of their own: of what they learn, what they log, or the libraries they need.
ELSEWHERE = {
    "amsgrad_problem", "cnn_optimizers", "compare_optimizers", "events_tonic", "foreign_neurons",
    "hybrid_backprop", "manual_optimization", "no_optimizer",
}  # fmt: skip

PRINTED = {
    "bcm_selectivity": "20 neurons, 10 patterns", "digits_ottt": "readout only",
    "digits_rows": "e-prop, random feedback", "evidence_accumulation": "drawn to",
    "homeostasis": "nothing moves", "pattern_generation": "drawn to",
    "receptive_fields": "share oriented:", "reward_xor": "of 1 seeds",
    "stdp_window": "add to an isolated pair: 0e+00",
    "triplet_frequency": "all-to-all, minimal  0.36 (paper 0.34)",
}  # fmt: skip

MODES = ("cumulative", "nearest")

# These print the summary of a fit there; the others print nothing but their results.
SUMMARIES = {"digits_stdp", "oja_pca", "receptive_fields"}


NAMES = sorted(f.stem for f in (ROOT / "examples").glob("[!_]*.py"))


@pytest.mark.parametrize("name", NAMES)
def test_one_file_defines_every_name_once(name):
    def bound(node):
        if isinstance(node, ast.Assign):
            return [each.id for each in ast.walk(node.targets[0]) if isinstance(each, ast.Name)]
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            return [alias.asname or alias.name for alias in node.names]
        return [node.name] if isinstance(node, (ast.ClassDef, ast.FunctionDef)) else []

    names = Counter(each for node in ast.parse(one_file(name)).body for each in bound(node))
    assert [each for each, count in names.items() if count > 1] == []


@pytest.mark.parametrize("name", sorted({*NAMES} - ELSEWHERE))
def test_runs_and_draws(name, tmp_path):
    picture, program = tmp_path / "found.png", tmp_path / f"{name}.py"
    program.write_text(one_file(name), encoding="utf-8")
    done = Forked(program, ["--short", "--picture", picture], tmp_path).wait()
    assert done.returncode == 0, done.stderr
    assert "proves nothing" in done.stdout.partition("\n")[0]
    if name in SUMMARIES:
        assert done.stderr.startswith("Local learning")
        assert "Warning" not in done.stderr
    else:
        assert not done.stderr.strip()
    assert PRINTED.get(name, "") in done.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
    if name == "oja_pca":
        lines = done.stdout.splitlines()
        for rule, count in (("Oja", 1), ("Sanger", 4)):
            (line,) = (line for line in lines if line.split()[0] == rule)
            cosines = [float(value) for value in line.split()[1:]]
            assert len(cosines) == count
            assert min(cosines) > 0.99
    if name == "reward_xor_temporal":
        assert done.stdout.count("of 1 seeds") == 5
    if name == "stdp_window":
        rules = [f"{rule}, {mode}" for rule in ("pairs", "triplets") for mode in MODES]
        assert all(rule in done.stdout for rule in (*rules, "kernel, a hat"))


# What the last line has to show: percent right by what was learned, at least, and how much better
# than the same network untrained.
LEARNED = {
    "no_optimizer": (75.0, 25.0, "90 updates by STDP, none by gradient"),
    "manual_optimization": (65.0, 3.0, "540 steps of two optimizers"),
    "hybrid_backprop": (80.0, 8.0, "270 steps of the readout's optimizer"),
}


@pytest.mark.parametrize("name", LEARNED)
def test_learns_in_its_short_form(name, tmp_path):
    least, better, line = LEARNED[name]
    done = Forked(ROOT / "examples" / f"{name}.py", ["--short"], tmp_path).wait()
    assert done.returncode == 0, done.stderr
    summary, *_ = done.stderr.splitlines()  # and nothing that Lightning remarks
    assert summary == "Local learning, by updates 1, 2, 4, 8, ... and those of logging steps:"
    assert line in done.stdout
    learned, untrained, *_ = map(float, re.findall(r"([\d.]+) %", done.stdout))
    assert learned > least
    assert learned - untrained > better
    assert imread(tmp_path / f"{name}.png").std() > 0.01
