"""Events by Tonic: the example learns directions, and its frames of counts are refused uncut."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from _forked import Forked
from matplotlib.image import imread

from lightning_accum import STDP, RuleTrainer, Serial
from lightning_accum.nn import LIF, Linear

transforms = pytest.importorskip("tonic.transforms", reason="tonic is not installed")
EXAMPLES = Path(__file__).parents[2] / "examples"


def test_directions_are_learned(tmp_path):
    done = Forked(EXAMPLES / "events_tonic.py", ["--short"], tmp_path).wait()
    assert (done.returncode, done.stderr) == (0, "")
    untrained, learned, chance = map(float, re.findall(r"([\d.]+) %", done.stdout))
    assert chance == 50
    assert learned > 85
    assert learned > untrained + 15
    assert int(re.findall(r"up to (\d+)", done.stdout)[0]) > 1  # so that there is something to cut
    assert imread(tmp_path / "events_tonic.png").std() > 0.01


def frames_of_two_events():
    """Frames ``[T, 1, 4]`` in the first of which a pixel has two events."""
    events = np.zeros(3, [(name, int) for name in "txyp"])
    events["t"] = 0, 1, 3
    frames = transforms.ToFrame((2, 1, 2), time_window=2, start_time=0, end_time=4)(events)
    assert frames.max() == 2
    return torch.from_numpy(frames).flatten(1).unsqueeze(1).float()


@pytest.mark.parametrize("cut", [False, True])
def test_counts_are_refused_and_spikes_are_not(cut):
    counts = frames_of_two_events()
    layer = Serial(Linear(4, 1, bias=False), LIF(1, time_dim=0))
    rule = RuleTrainer(STDP(0.1, -0.05), time_dim=0)
    torch.nn.init.ones_(layer.connection.weight)
    before = layer.connection.weight.detach().clone()
    rule.register_cell("layer", layer.cell)
    if cut:
        layer(counts.clamp(max=1))
        rule()
        rule.update()
        assert not torch.equal(layer.connection.weight, before)
    else:
        with pytest.raises(ValueError, match=r"0 or 1\. Found 2\.0 before the connection"):
            layer(counts)
