"""Configurations and checkpoints that somebody else has written."""

import os
import pickle
import sys

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.cli import LightningCLI
from torch import nn

from lightning_accum import STDP, Accumulator, CellSpec
from lightning_accum.callbacks import CellTrainerCallback

CONFIG = """
trainer:
  accelerator: cpu
  logger: false
  callbacks:
    - class_path: lightning_accum.callbacks.CellTrainerCallback
      init_args:
        cell_trainer:
          class_path: lightning_accum.STDP
          init_args: {lr_post: 0.1, lr_pre: -0.1}
        cells:
          enc: {connection: fc, neuron: relu}
"""


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.fc, self.relu = nn.Linear(2, 2), nn.ReLU()


def cli(folder, monkeypatch, config):
    (folder / "config.yaml").write_text(config)
    monkeypatch.setattr(sys, "argv", ["program", f"--config={folder / 'config.yaml'}"])
    return LightningCLI(Net, run=False, save_config_callback=None, seed_everything_default=False)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("class_path: lightning_accum.STDP", "class_path: subprocess.Popen"),
        ("class_path: lightning_accum.STDP", "class_path: os.system"),
        ("class_path: lightning_accum.STDP", "class_path: torch.nn.Linear"),
        ("enc: {connection: fc, neuron: relu}", "enc: {class_path: subprocess.Popen}"),
        ("neuron: relu}", "neuron: relu, class_path: subprocess.Popen, init_args: {args: id}}"),
        ("connection: fc", "connection: {class_path: subprocess.Popen, init_args: {args: id}}"),
        ("connection: fc", "connection: !!python/object/apply:os.getcwd []"),
    ],
)
def test_a_configuration_that_names_what_is_no_such_class(right, wrong, tmp_path, monkeypatch):
    made = cli(tmp_path, monkeypatch, CONFIG)
    assert any(isinstance(c, CellTrainerCallback) for c in made.trainer.callbacks)
    assert CONFIG.count(right) == 1
    with pytest.raises(SystemExit):
        cli(tmp_path, monkeypatch, CONFIG.replace(right, wrong))


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
    net = Net()
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
