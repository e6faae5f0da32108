"""Checkpoints that somebody else has written."""

import os
import pickle

import pytest
import torch
from torch import nn

from lightning_accum import STDP, Accumulator, CellSpec
from lightning_accum.callbacks import CellTrainerCallback


class Payload:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("place", ["top", "callback", "weight"])
def test_a_checkpoint_with_code_in_it_is_refused(place, tmp_path):
    path, mark = tmp_path / "evil.ckpt", tmp_path / "executed"
    use = CellTrainerCallback(STDP(0.1, -0.1), {"enc": CellSpec("fc", "relu")})
    net = nn.ModuleDict({"fc": nn.Linear(2, 2), "relu": nn.ReLU()})
    use.host.bind(net)
    checkpoint = {"state_dict": net.state_dict(), "callbacks": {use.state_key: use.state_dict()}}
    torch.save(checkpoint, path)
    assert torch.load(path, weights_only=True).keys() == checkpoint.keys()
    within = {
        "top": checkpoint,
        "callback": checkpoint["callbacks"][use.state_key]["host"]["trainer"],
        "weight": checkpoint["state_dict"],
    }[place]
    within["more"] = Payload(mark)
    torch.save(checkpoint, path)
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        torch.load(path, weights_only=True)
    assert not mark.exists()


@pytest.mark.parametrize("name", ["torch", "__builtins__", "", "power.__globals__"])
def test_a_state_names_bounds_of_this_package_alone(name):
    accumulator = Accumulator()
    accumulator.fullbound("power", 1.0, 0.0)
    state = accumulator.get_extra_state()
    state["bounds"]["full"]["name"] = name
    fresh = Accumulator()
    with pytest.raises(RuntimeError, match="should hold a bound of this package"):
        fresh.set_extra_state(state)
    assert not fresh.bounded
