"""Several processes that stop in the middle of a group go on as if they had not."""

from functools import partial

import pytest
import torch
from callback_helpers import Local, Resumable, SaveAt
from round_trips import differences
from run_ranks import resuming, share, trainer
from torch import nn

import lightning_accum as la
from lightning_accum._extra_state import unpack
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.metrics import MaxRateClassifier
from lightning_accum.nn import LIF, AdaptiveLIF, PoissonEncoder

INPUTS, OUTPUTS, BATCH, BATCHES = 6, 5, 4, 7
STOP = 4  # one batch into a group of three


def pieces(rank, ranks):
    """Images and labels of one process."""
    images = torch.rand(BATCHES, BATCH, INPUTS, generator=torch.Generator().manual_seed(1))
    mine = torch.arange(BATCH).tensor_split(ranks)[rank]
    return Resumable([(each[mine], mine % 3) for each in images], batch_size=None)


class Model(Local):
    """With noise, everything that a process has of its own; without, the same in any number."""

    def __init__(self, noise):
        super().__init__()
        torch.manual_seed(0)
        self.encoder = PoissonEncoder(steps=8, max_rate=400.0, seed=0 if noise is None else noise)
        self.noise = noise is not None
        self.fc = nn.Linear(INPUTS, OUTPUTS, bias=False).requires_grad_(False)
        nn.init.uniform_(self.fc.weight, 0.0, 1.0)
        kind = partial(AdaptiveLIF, theta_plus=0.1) if self.noise else LIF
        self.lif = kind(OUTPUTS, v_threshold=0.6, time_dim=0)
        self.readout = MaxRateClassifier(OUTPUTS, 3)
        self.double()

    def training_step(self, batch, batch_idx):
        images, labels = batch
        spikes = self.encoder(images) if self.noise else images.expand(8, -1, -1) > 0.5
        if not self.noise:
            self.lif.reset()
        out = self.lif(self.fc(spikes.double()))
        self.readout.update(out.mean(0), labels)
        return {"reward": out.mean(2) - 0.1}


STDP = la.STDP(0.03, -0.02)
MODULATED = la.MSTDPET(0.003, -0.002, reward=la.Neuromodulator(20.0, baseline=0.1))


def fit(path, rank, ranks, resume, noise):
    """What a process ends with: all of its model, and what its callback keeps."""
    model = Model(10 + rank if noise else None)
    callback = CellTrainerCallback(
        MODULATED if noise else STDP,
        cells={"enc": la.CellSpec("fc", "lif")},
        time_dim=0,
        batch_reduction="mean" if noise else "sum",
        apply_every_n_batches=3,
        carry=noise,
        input_keys=("reward",) if noise else (),
    )
    run = trainer(ranks, callback, *([] if resume else [SaveAt(STOP, path, stop=False)]))
    run.fit(model, pieces(rank, ranks), **resuming(path if resume else None))
    return {"model": dict(model.state_dict()), "callback": callback.state_dict()}


def main(rank, ranks, folder):
    own, alone = folder / f"own of {ranks}.ckpt", folder / "alone.ckpt"
    return {
        "whole": fit(own, rank, ranks, resume=False, noise=True),
        "resumed": fit(own, rank, ranks, resume=True, noise=True),
        "of one": fit(alone, rank, ranks, resume=ranks > 1, noise=False),  # two go on from one
    }


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_process_ends_with_every_bit(found, ranks):
    for mine in found[ranks]:
        whole, resumed = mine["whole"], mine["resumed"]
        assert differences(whole, resumed) == []
        state = whole["callback"]["host"]["trainer"]["_states.enc._extra_state"]
        carried = unpack(state, "")["carried"]
        assert any("released" in key for key in carried)


def test_processes_had_something_of_their_own(found):
    one, two = (mine["whole"]["model"] for mine in found[2])
    differ = {at.split("'")[1] for at in differences(one, two)}
    assert {"encoder._extra_state", "lif.theta", "lif._extra_state"} <= differ
    assert "fc.weight" not in differ


def test_what_one_process_had_pending_counts_once_where_two_go_on(found):
    alone = found[1][0]["of one"]["model"]["fc.weight"]
    for mine in found[2]:
        found_ = mine["of one"]["model"]["fc.weight"]
        torch.testing.assert_close(found_, alone, rtol=1e-9, atol=1e-12)


def test_a_resume_by_fewer_processes_is_told(found):
    saved = found[2][0]["whole"]["callback"]
    options = {"apply_every_n_batches": 3, "carry": True, "time_dim": 0}
    callback = CellTrainerCallback(MODULATED, {"enc": la.CellSpec("fc", "lif")}, **options)
    others = [{**found[2][1]["whole"]["callback"], "modules": {}}]
    with pytest.warns(RuntimeWarning, match="of 2 processes should .* Found 1, so that only the"):
        callback.load_state_dict({**saved, "others": others})
    callback.load_state_dict({**saved, "others": []})  # of one process


if __name__ == "__main__":
    share(main)
