"""The examples run in their short form, and learn."""

import re
from pathlib import Path

import pytest
from _forked import Forked
from matplotlib.image import imread

EXAMPLES = Path(__file__).parents[2] / "examples"

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
    done = Forked(EXAMPLES / f"{name}.py", ["--short"], tmp_path).wait()
    assert done.returncode == 0, done.stderr
    summary, *_ = done.stderr.splitlines()  # and nothing that Lightning remarks
    assert summary == "Local learning, by what the logging steps saw:"
    assert line in done.stdout
    learned, untrained, *_ = map(float, re.findall(r"([\d.]+) %", done.stdout))
    assert learned > least
    assert learned - untrained > better
    assert imread(tmp_path / f"{name}.png").std() > 0.01
