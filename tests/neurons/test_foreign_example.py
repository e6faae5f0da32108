"""The example learns with the neurons of every library, and skips where there is none."""

import importlib
import re
from pathlib import Path

import pytest
import torch
from _forked import Forked
from matplotlib.image import imread

EXAMPLES = Path(__file__).parents[2] / "examples"
LIBRARIES = ["snntorch", "norse", "spikingjelly"]


def run(folder, *args, script=EXAMPLES / "foreign_neurons.py"):
    done = Forked(script, ["--short", *args], folder).wait()
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("library", LIBRARIES)
def test_learns_in_its_short_form(library, tmp_path):
    pytest.importorskip(library, reason=f"{library} is not installed")
    shown = run(tmp_path, "--library", library)
    assert "85 updates by STDP, none by gradient" in shown
    spiking, learned, untrained, chance = map(float, re.findall(r"([\d.]+) ?%", shown))
    assert 0.1 < spiking < 1 / 0.9  # one of a hundred neurons is driven at a time
    assert chance == 10
    assert learned > 65
    assert learned - untrained > 15
    assert imread(tmp_path / "foreign_neurons.png").std() > 0.01


def test_skips_without_the_library(tmp_path):
    without = tmp_path / "without.py"
    without.write_text(
        "import runpy, sys\n"
        "for name in ('snntorch', 'norse', 'spikingjelly'): sys.modules[name] = None\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
        f"runpy.run_path({str(EXAMPLES / 'foreign_neurons.py')!r}, run_name='__main__')\n"
    )
    everything = run(tmp_path, script=without)
    assert everything.endswith("\nskipped: none of snntorch, norse, spikingjelly is installed\n")
    one = run(tmp_path, "--library", "norse", script=without)
    assert one.endswith("\nskipped: norse is not installed\n")


def test_neurons_tire_in_training_only():
    pytest.importorskip("snntorch", reason="snntorch is not installed")
    model = importlib.import_module("foreign_neurons").Digits("snntorch").eval()
    images = torch.rand(8, 64)

    def spikes():
        torch.manual_seed(0)  # of the encoder
        with torch.no_grad():
            return model(images)

    fresh = spikes()
    theta = model.neuron.theta
    theta += torch.linspace(0.0, 100.0, 100)
    assert fresh.sum() > 0
    assert torch.equal(spikes(), fresh)  # else the last batches would decide who answers
    assert not torch.equal(model.train().neuron.theta.clone(), (spikes(), theta)[1])
