"""The zoo's page is made of what examples print."""

from __future__ import annotations

import re
from pathlib import Path

import _result as result
import zoo

ROOT = Path(__file__).parents[2]


def test_reads_what_an_example_reports(capsys):
    result.report(result.spread([97.0, 98.0]), 1234.4)
    found = zoo.parse(capsys.readouterr().out)
    assert found == {"result": "97.5 % ± 0.7 (seeds: 97.0, 98.0)", "speed": "1,234"}


def test_keeps_what_an_example_prints_of_its_control():
    printed = "  STDP, shuffled  10.0 %\n  R-STDP, shuffled 11.0 %\nresult: 97 %\nspeed: 3 samples"
    found = zoo.parse(printed, ", shuffled")
    assert found["control"] == "STDP, shuffled 10.0 %; R-STDP, shuffled 11.0 %"
    assert zoo.parse(printed, "k-means") is None  # the example says it otherwise now
    assert "control" not in zoo.parse(printed)


def test_every_control_is_one_that_the_example_prints():
    for name, control in zoo.CONTROLS.items():
        printed = (ROOT / "docs" / "outputs" / f"{name}.txt").read_text(encoding="utf-8")
        found = zoo.parse(printed, control)
        assert found is not None, name
        assert any(figure.isdigit() for figure in found["control"]), name


def test_a_run_without_a_result_is_no_result():
    assert zoo.parse("speed: 3 samples per second\nthe result: 97 %") is None


def test_every_network_is_an_example_that_reports():
    for name, network in zoo.ZOO.items():
        source = (ROOT / "examples" / f"{network.example}.py").read_text(encoding="utf-8")
        assert re.search(r"^    report\(", source, re.MULTILINE), name
        assert len(source.splitlines()) <= 120, name


def test_the_page_holds_what_was_measured_and_says_what_was_not():
    kept = {"conv_wta": {"result": "98 %", "speed": "7", "time": "8 s", "machine": "ours"}}
    rows = [line for line in zoo.page(kept).splitlines() if line.startswith("| [")]
    assert len(rows) == len(zoo.ZOO)
    assert len({row.count("|") for row in rows}) == 1
    measured = [row for row in rows if "not run" not in row]
    assert len(measured) == 1
    assert "| 98\N{NO-BREAK SPACE}% | – | 7 |" in measured[0]


def test_the_page_is_the_one_of_the_measurements_that_are_kept():
    assert zoo.PAGE.read_text(encoding="utf-8") == zoo.page(zoo.recall())
