"""Killed at any moment and resumed, a run ends with every bit of one that was left alone.

`make crash` kills fifty times; the tests a few.
"""

import os
from pathlib import Path

import pytest
import torch
from _forked import Forked
from values import differences

SCRIPT = Path(__file__).with_name("killed_run.py")
CUTS = int(os.environ.get("LIGHTNING_ACCUM_CUTS", "4"))


@pytest.mark.parametrize("how", ["KILL", "TERM"])
def test_it_ends_with_every_bit_of_a_run_left_alone(how, tmp_path):
    done = Forked(SCRIPT, [tmp_path, CUTS, how]).wait()
    assert done.returncode == 0, done.stderr
    assert f"{CUTS} cuts" in done.stdout
    whole = torch.load(tmp_path / "whole" / "end", weights_only=True)
    parts = ("state_dict", "optimizer_states", "lr_schedulers", "global_step")
    ours = [key for key in whole["callbacks"] if key.startswith("CellTrainerCallback")]
    assert len(ours) == 2
    assert whole["global_step"] > 0
    for cut in tmp_path.glob("cut *"):
        end = torch.load(cut / "end", weights_only=True)
        for state, keys in ((whole, end), parts), ((whole["callbacks"], end["callbacks"]), ours):
            assert not differences(*({key: each[key] for key in keys} for each in state))
