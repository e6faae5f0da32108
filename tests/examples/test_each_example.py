"""Each example runs in its short form, as the one file of its page, prints and draws."""

import ast
import re
import runpy
import statistics
from collections import Counter
from pathlib import Path

import _result as result
import pytest
import zoo
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
    "no_optimizer": (75.0, 25.0, "85 updates by STDP, none by gradient"),
    "manual_optimization": (65.0, 3.0, "510 steps of two optimizers"),
    "hybrid_backprop": (80.0, 8.0, "255 steps of the readout's optimizer"),
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


# ---------------------------------------------------------------------------- the zoo
def test_reads_what_an_example_reports(capsys):
    controls = {"noise: much": result.spread([90.0, 91.5]), "nothing": result.spread([10.0, 9.0])}
    result.report(result.spread([97.0, 98.0]), 1234.4, controls)
    assert zoo.parse(capsys.readouterr().out) == {
        "unit": " %",
        "result": ["97.0", "98.0"],
        "control": {"noise: much": ["90.0", "91.5"], "nothing": ["10.0", "9.0"]},
    }


@pytest.mark.parametrize("left_out", ["result", "control"])
def test_a_run_without_a_line_is_no_result(capsys, left_out):
    result.report("0.5 (seeds: 0.5)", 3.0, {"none": "-0.5 (seeds: -0.5)"})
    printed = capsys.readouterr().out
    assert zoo.parse(printed) is not None
    assert zoo.parse(printed.replace(left_out, f"no {left_out}")) is None


def test_the_strongest_control_is_that_of_all_splits():
    splits = [
        {"a": ["1.0", "2.0"], "b": ["3.0", "0.0"]},
        {"a": ["9.0", "9.0"], "b": ["0.0", "0.0"]},
    ]
    assert zoo.strongest(splits, 1) == {"name": "a", "values": [["1.0", "2.0"], ["9.0", "9.0"]]}
    assert zoo.strongest(splits, -1)["name"] == "b"


def test_the_gain_has_the_larger_error():
    differences = [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]
    found = {
        "result": [[str(10 + x) for x in split] for split in differences],
        "control": {"values": [["10", "10", "10"]] * 2},
    }
    over_splits = statistics.stdev([2.0, 6.0]) / 2**0.5
    assert zoo.gain(found, 1) == pytest.approx((4.0, over_splits))
    assert zoo.gain(found, -1)[0] == -4.0
    alone = {"result": found["result"][:1], "control": {"values": [["10"] * 3]}}
    assert zoo.gain(alone, 1) == pytest.approx((2.0, 1 / 3**0.5))


def test_every_network_is_an_example_that_reports():
    for name, network in zoo.ZOO.items():
        source = (ROOT / "examples" / f"{network.example}.py").read_text(encoding="utf-8")
        assert re.search(r"^    report\(", source, re.MULTILINE), name
        assert len(source.splitlines()) <= 170, name
        if network.splits > 1 and network.example != "digits_stdp":
            assert "split=0" in source or '"split": 0' in source, name


def test_the_page_holds_what_was_measured_and_says_what_was_not():
    control = {"name": "noise", "values": [["90.0", "91.0"]]}
    kept = {"conv_wta": {"result": [["98.0", "97.0"]], "control": control, "unit": " %"}}
    rows = [line for line in zoo.page(kept).splitlines() if line.startswith("| [")]
    assert len(rows) == len(zoo.ZOO)
    assert len({row.count("|") for row in rows}) == 1
    assert [row.replace("\N{NO-BREAK SPACE}", " ") for row in rows if "not run" not in row] == [
        "| [MNIST-5k](../examples/conv_wta.py) | WTAHebb, then a linear readout; 128 filters of"
        " 7 × 7 | 97.5 % ± 0.7 (2) | noise: 90.5 % ± 0.7 (2) | +7.0 ± 1.0 |"
    ]
    assert "+7.0" in zoo.page(kept).split(zoo.SECTIONS[1])[0]  # by seven standard errors


def test_the_page_is_the_one_of_the_measurements_that_are_kept():
    assert zoo.PAGE.read_text(encoding="utf-8") == zoo.page(zoo.recall())
