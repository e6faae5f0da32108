"""The zoo's page is made of what examples print."""

import re
import statistics
from pathlib import Path

import _result as result
import pytest
import zoo

ROOT = Path(__file__).parents[2]


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
