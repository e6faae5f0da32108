"""What a Weights & Biases run is given, read back from the files of an offline run."""

import json

import pytest
import torch
from callback_helpers import BATCH, INPUTS, OUTPUTS, STEPS, Net, callback, loader, trainer
from lightning.pytorch.loggers import WandbLogger
from test_pictures import pixels, scaled

from lightning_accum.callbacks import UpdatePictures

wandb = pytest.importorskip("wandb", reason="wandb is not installed; it comes with the extra dev")
internal = pytest.importorskip("wandb.proto.wandb_internal_pb2")


def records(path):
    """The records of a run's file: LevelDB's log format, after seven bytes that name it."""
    data, at, parts = path.read_bytes(), 7, b""
    while at + 7 <= len(data):
        left = 2**15 - at % 2**15  # of a block, in which no record begins in the last bytes
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        parts += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # the whole of a record, or its last part
            yield internal.Record.FromString(parts)
            parts = b""


def history(folder):
    """What was logged, by name and Lightning's step, and the hyperparameters."""
    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    found = {}
    config = {}
    for record in records(path):
        row = {
            item.key or ".".join(item.nested_key): json.loads(item.value_json)
            for item in record.history.item
        }
        for name, value in row.items():
            found.setdefault(name, {})[row["trainer/global_step"]] = value
        for item in record.config.update:
            config[item.key or ".".join(item.nested_key)] = json.loads(item.value_json)
    return found, config


def image(folder, names):
    (name,) = names
    (path,) = folder.glob(f"wandb/offline-run-*/files/{name}")
    return pixels(path.read_bytes())


class Kept(Net):
    def __init__(self):
        super().__init__()
        self.spikes = []

    def forward(self, x):
        out = super().forward(x)
        self.spikes.append(out)
        return out


@pytest.mark.slow
def test_statistics_and_pictures_arrive(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_CONSOLE", "off")  # it would go on to redirect what is printed
    net = Kept()
    board = WandbLogger(save_dir=tmp_path, project="learning")
    run = trainer(tmp_path, callback(), UpdatePictures(2), logger=board)
    run.fit(net, loader(4))
    wandb.teardown()  # ends the run and its process, which writes the rest
    found, config = history(tmp_path)

    assert {"updates/enc/weight/ratio", "activity/enc/firing_rate"} <= {*found}
    # pictures of every second logging step, of the weights and spikes then
    fields_at, spikes_at = (found[f"{k}.filenames"] for k in ("fields/enc/weight", "spikes/enc"))
    assert {*fields_at} == {*spikes_at} == {1, 3}
    fields, weight = image(tmp_path, fields_at[3]), net.fc.weight.detach()
    assert fields.shape == (OUTPUTS, INPUTS)
    assert (fields - scaled(weight)).abs().max() < 0.51 / 255
    for step in (1, 3):
        raster = image(tmp_path, spikes_at[step])
        assert raster.shape == (OUTPUTS, STEPS)
        assert torch.equal(raster, net.spikes[step][:, 0].T)
        assert 0 < raster.sum() < raster.numel()
    assert net.spikes[0].shape[1] == BATCH
    assert config["enc/rule"] == "STDP"
