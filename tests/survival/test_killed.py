"""Killed at any moment and resumed, a run ends with every bit of one that was left alone.

`make crash` kills fifty times; the tests a few.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from _forked import Forked

SCRIPT = Path(__file__).with_name("killed_run.py")
CUTS = int(os.environ.get("LIGHTNING_ACCUM_CUTS", "4"))


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Where two checkpoints differ."""
    if isinstance(one, torch.Tensor):
        return [] if torch.equal(one, other) and one.dtype == other.dtype else [place]
    if isinstance(one, dict) and isinstance(other, dict):
        found = [] if one.keys() == other.keys() else [f"{place}: {one.keys() ^ other.keys()}"]
        for key in one.keys() & other.keys():
            found += differences(one[key], other[key], f"{place}/{key}")
        return found
    if isinstance(one, list | tuple):
        if len(one) != len(other):
            return [place]
        return [
            where
            for i, pair in enumerate(zip(one, other, strict=True))
            for where in differences(*pair, f"{place}/{i}")
        ]
    return [] if one == other else [place]


@pytest.mark.parametrize("how", ["KILL", "TERM"])
def test_it_ends_with_every_bit_of_a_run_left_alone(how: str, tmp_path: Path):
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
        assert not [d for part in parts for d in differences(whole[part], end[part], part)]
        assert not [
            d for key in ours for d in differences(whole["callbacks"][key], end["callbacks"][key])
        ]
