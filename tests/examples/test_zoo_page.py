"""The page of networks: what it reads of examples, what it tests, and what it shows."""

import re
import statistics
import subprocess
import sys
from pathlib import Path

import _experiment as result
import pytest
import zoo
from scipy.stats import ttest_1samp

ROOT = Path(__file__).parents[2]


def test_reads_what_an_example_reports(capsys):
    controls = {"noise: much": result.spread([90.0, 91.5]), "nothing": result.spread([10.0, 9.0])}
    simple = {"ridge": result.spread([99.0, 98.5])}
    result.report(result.spread([97.0, 98.0]), 1234.4, controls, simple)
    assert zoo.parse(capsys.readouterr().out) == {
        "unit": " %",
        "result": "97.0, 98.0",
        "control": {"noise: much": "90.0, 91.5", "nothing": "10.0, 9.0"},
        "simple": {"ridge": "99.0, 98.5"},
    }


@pytest.mark.parametrize("left_out", ["result", "control"])
def test_a_run_without_a_line_is_no_result(capsys, left_out):
    result.report("0.5 (seeds: 0.5)", 3.0, {"none": "-0.5 (seeds: -0.5)"})
    printed = capsys.readouterr().out
    assert zoo.parse(printed) is not None
    assert zoo.parse(printed.replace(left_out, f"no {left_out}")) is None


def test_folds_come_together_if_none_failed_and_all_have_the_same_controls(capsys):
    fold = {"unit": "", "result": "1, 2", "control": {"a": "0, 1", "b": "1, 0"}, "simple": {}}
    assert zoo.together([fold, None]) is None
    assert capsys.readouterr().out == ""
    assert zoo.together([fold, {**fold, "control": {"a": "0, 1"}}]) is None
    assert "Expected each control on every fold" in capsys.readouterr().out
    control = {"a": ["0, 1", "0, 1"], "b": ["1, 0", "1, 0"]}
    both = {"unit": "", "result": ["1, 2", "1, 2"], "control": control, "simple": {}}
    assert zoo.together([fold, fold]) == both


def test_the_strongest_control_is_that_of_all_folds():
    folds = {"a": ["1.0, 2.0", "9.0, 9.0"], "b": ["3.0, 0.0", "0.0, 0.0"]}
    assert zoo.strongest(folds, 1) == "a"
    assert zoo.strongest(folds, -1) == "b"


def test_the_samples_of_the_test_are_folds_or_the_seeds_of_one():
    differences = [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0], [2.0, 3.0, 4.0]]
    learned = [[10 + x for x in fold] for fold in differences]
    plain = [[10.0] * 3] * 3
    found, other = zoo.gain(learned, plain), zoo.gain(learned, plain, -1)
    expected = ttest_1samp([2.0, 6.0, 3.0], 0)
    assert found.mean == pytest.approx(11 / 3)
    assert found.error == pytest.approx(statistics.stdev([2.0, 6.0, 3.0]) / 3**0.5)
    assert (found.t, found.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert (other.mean, other.t, other.p) == pytest.approx((-found.mean, -found.t, found.p))
    alone = zoo.gain(learned[:1], plain[:1])
    assert (alone.freedom, alone.p) == (2, pytest.approx(ttest_1samp([1.0, 2, 3], 0).pvalue))
    assert "t(2) = 3.5, p = 0.07" in str(alone)
    assert zoo.gain([[3.0, 3.0]], [[3.0, 3.0]])[2:4] == (0.0, 1.0)  # alike: no gain, and certain
    assert zoo.gain([[3.0, 3.0]], [[2.0, 2.0]]).p == 0


def test_many_tests_ask_for_more_of_each():
    p = {"a": 0.001, "b": 0.012, "c": 0.03, "d": 0.02}
    assert zoo.significant(p, 4) == {"a", "b", "c", "d"}
    assert zoo.significant({**p, "d": 0.026}, 4) == {"a", "b"}  # c is no better than d
    assert zoo.significant(p, 8) == {"a"}
    assert zoo.significant({}, 8) == set()


def test_every_network_is_an_example_that_reports():
    for name, network in zoo.ZOO.items():
        source = (ROOT / "examples" / f"{network.example}.py").read_text(encoding="utf-8")
        assert re.search(r"^    report\(", source, re.MULTILINE), name
        assert len(source.splitlines()) <= 250, name
        if network.folds > 1:
            assert "fold" in source or network.example == "digits_stdp", name
            assert re.search(r"--seeds [123]\b", network.options)


def test_the_page_holds_what_was_measured_and_says_what_was_not():
    folds = ["90.0, 91.0", "91.0, 92.0", "89.0, 90.0"]
    kept = {
        "conv_wta": {
            "result": ["98.0, 97.0", "98.0, 98.0", "98.0, 97.0"], "unit": " %",
            "control": {"noise": folds, "patches": ["89.0, 89.0"] * 3},
            "simple": {"worse": ["9.0, 9.0"] * 3, "ridge": ["99.0, 99.0"] * 3},
        },
        "oja_pca": {
            "result": ["1.00, 0.98"], "unit": "", "control": {"Hebb": ["0.10, 0.10"]}, "simple": {}
        },
    }  # fmt: skip
    page = zoo.page(kept).replace("\N{NO-BREAK SPACE}", " ")
    rows = [line for line in page.splitlines() if line.startswith("| [")]
    assert len(rows) == len(zoo.ZOO)
    assert len({row.count("|") for row in rows}) == 1
    expected = (
        "| [MNIST-5k](../examples/conv_wta.py) | WTAHebb, then a linear readout; 128 filters of"
        " 7 × 7 | 97.7 % ± 0.5 (6) | noise: 90.5 % ± 1.0 (6) | +7.2 ± 0.4, t(2) = 16.3,"
        " p = 0.004 | ridge: 99.0 % ± 0.0 (6) |"
    )
    assert expected in page
    at = {title: page.index(f"## {title}") for title in zoo.SECTIONS if f"## {title}" in page}
    # p would have to be below 0.05 / 17 or so
    assert [*at] == ["No better than its control", "Checks of a rule", "Not run yet"]
    assert at["Checks of a rule"] < page.index("+0.89 ± 0.01") < at["Not run yet"]
    kept["conv_wta"]["result"] = ["99.0, 98.0", "100.0, 99.0", "98.0, 97.0"]
    assert "+8.0" in zoo.page(kept).split("## No better")[0].split("## The rule adds")[1]


def test_the_page_is_the_one_of_the_measurements_that_are_kept():
    assert zoo.PAGE.read_text(encoding="utf-8") == zoo.page(zoo.recall())


def test_runs_are_kept_by_fold_and_what_failed_is_named(monkeypatch, tmp_path, capsys):
    def ran(script, options, folder, seconds):
        folds = [option for option in options if option.startswith("--fold=")]
        fold = int(folds[0].removeprefix("--fold=")) if folds else 0
        text = f"result: 9 (seeds: {fold}, 9)\ncontrol: none: 1 (seeds: 1, {fold})\n"
        code = int(script.stem == "speech" and fold == 3)
        return subprocess.CompletedProcess([], code, text, "broken")

    kept, pages, outputs = tmp_path / "zoo.json", tmp_path / "zoo.md", []
    for name, value in {"run_script": ran, "KEPT": kept, "PAGE": pages}.items():
        monkeypatch.setattr(zoo, name, value)
    monkeypatch.setattr(zoo, "keep", lambda script, options, _: outputs.append(script.stem))
    names = ["conv_wta", "speech", "mnist_stdp_100", "evidence_accumulation"]
    monkeypatch.setattr(sys, "argv", ["zoo", "--jobs", "2", "--only", *names])
    with pytest.raises(SystemExit, match="1 of 4 did not end: speech"):
        zoo.main()
    assert "--fold=3'" in capsys.readouterr().out
    found = zoo.recall()
    assert list(found) == ["mnist_stdp_100", "conv_wta", "evidence_accumulation"]
    assert found["conv_wta"]["result"] == [f"{fold}, 9" for fold in range(5)]
    assert found["conv_wta"]["control"] == {"none": [f"1, {fold}" for fold in range(5)]}
    assert found["evidence_accumulation"]["result"] == ["0, 9"]
    assert sorted(outputs) == ["conv_wta", "evidence_accumulation", "speech"]
    assert pages.read_text(encoding="utf-8") == zoo.page(found)
