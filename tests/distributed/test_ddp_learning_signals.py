"""Several processes learn from an error what one learns, and resume to the bit."""

import lightning.pytorch as pl
import pytest
import torch
from callback_helpers import Local, Resumable, SaveAt
from round_trips import differences
from run_ranks import as_one, resuming, share, trainer
from test_ddp import pieces
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum._extra_state import unpack
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LeakyIntegrator, SurrogateLIF
from lightning_accum.rules import LearnedFeedback, RandomFeedback, SymmetricFeedback

STEPS, INPUTS, NEURONS, CLASSES = 10, 6, 8, 3
STOP = 3  # batches, in the middle of an epoch and of a group of two
FEEDBACK = {
    "random": lambda: RandomFeedback(CLASSES, NEURONS),
    "symmetric": lambda: SymmetricFeedback("readout"),
    "learned": lambda: LearnedFeedback("readout", CLASSES, NEURONS, decay=0.01),
}


def labelled(rank, ranks):
    """Each batch's share of this process, with labels."""
    batches = pieces(rank, ranks, STEPS, INPUTS)
    return [(spikes, (10 * reward.abs()).long() % CLASSES) for spikes, reward in batches]


class Model(Local):
    """Adaptive recurrent neurons and a leaky readout; the potentials pass from batch to batch."""

    def __init__(self, reset):
        super().__init__()
        torch.manual_seed(0)
        self.reset = reset
        self.fc = nn.Linear(INPUTS, NEURONS)
        self.lif = SurrogateLIF(NEURONS, 8.0, beta=0.3, recurrent=True, time_dim=0)
        self.readout = nn.Linear(NEURONS, CLASSES)
        self.leak = LeakyIntegrator(CLASSES, tc_mem=9.0, time_dim=0)
        self.requires_grad_(False).double()
        self.fc.weight.mul_(2.0)

    def training_step(self, batch, batch_idx):
        spikes, labels = batch
        if self.reset:
            self.lif.reset()
            self.leak.reset()
        y = self.leak(self.readout(self.lif(self.fc(spikes))))
        return {"error": y.softmax(-1) - F.one_hot(labels, CLASSES)}


def fit(feedback, rank, ranks, reset, save=None, resume=None):
    """What a process ends with: all of its model, and what its callbacks keep."""
    model = Model(reset)
    if rank:  # the first process' weights count
        nn.init.zeros_(model.fc.weight)
    how = {
        "input_keys": ("error",), "apply_every_n_batches": 1 if reset else 2, "carry": not reset,
        "time_dim": 0,
    }  # fmt: skip
    learners = [
        CellTrainerCallback(
            la.EProp(0.05, FEEDBACK[feedback](), tc_readout=9.0),
            cells={
                "hidden": la.CellSpec("fc", "lif", params=("weight", "bias")),
                "recurrent": la.CellSpec("lif.recurrent", "lif"),
            },
            **how,
        ),
        CellTrainerCallback(la.DeltaRule(0.05), {"output": la.CellSpec("readout", "leak")}, **how),
    ]
    run = trainer(ranks, *learners, *([] if save is None else [SaveAt(STOP, save, stop=False)]))
    data = Resumable(labelled(rank, ranks), batch_size=None)  # goes on where it stopped
    run.fit(model, data, **resuming(resume))
    return {
        "model": dict(model.state_dict()),
        "callbacks": {str(i): each.state_dict() for i, each in enumerate(learners)},
    }


class Deep(pl.LightningModule):
    """Two hidden layers that learn by OTTT, and a head by SGD, from the mean of a loss."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fcs = nn.ModuleList([nn.Linear(INPUTS, NEURONS), nn.Linear(NEURONS, NEURONS)])
        self.fcs.requires_grad_(False)
        lifs = [SurrogateLIF(NEURONS, 8.0, gradient="step", time_dim=0) for _ in self.fcs]
        self.lifs = nn.ModuleList(lifs)
        self.head = nn.Linear(NEURONS, CLASSES)
        self.double()
        for fc in self.fcs:
            fc.weight.mul_(2.0)

    def training_step(self, batch, batch_idx):
        z, labels = batch
        z = z.clone().requires_grad_()
        for fc, lif in zip(self.fcs, self.lifs, strict=True):
            lif.reset()
            z = lif(fc(z))
        return F.cross_entropy(self.head(z).mean(0), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.head.parameters(), lr=0.5)


def deep(rank, ranks):
    """The weights after a fit by OTTT, in which every process has as many samples."""
    learner = CellTrainerCallback(
        la.OTTT(5.0),
        cells={str(i): la.CellSpec(f"fcs.{i}", f"lifs.{i}") for i in range(2)},
        time_dim=0,
        params=("weight", "bias"),
    )
    model = Deep()
    trainer(ranks, learner).fit(model, DataLoader(labelled(rank, ranks)[:2], batch_size=None))
    return dict(model.state_dict())


def main(rank, ranks, folder):
    path, more = folder / f"of {ranks}.ckpt", (rank, ranks, False)
    return {
        "OTTT": deep(rank, ranks),
        "whole": fit("learned", *more, save=path),
        "resumed": fit("learned", *more, resume=path),
        **{each: fit(each, rank, ranks, reset=True)["model"] for each in FEEDBACK},
    }


FIRST = "fcs.0.weight", "fcs.0.bias"
LEARNED = ("fc.weight", "fc.bias", "lif.recurrent.weight", "readout.weight")


@pytest.mark.parametrize("feedback", FEEDBACK)
def test_two_processes_learn_what_one_does(found, feedback):
    alone = as_one(found, lambda saved: {key: saved[feedback][key] for key in LEARNED})
    before = Model(reset=True).state_dict()
    assert all((alone[key] - before[key]).abs().max() > 1e-3 for key in LEARNED)


def test_ottt_follows_the_gradient_of_the_mean_over_all_samples(found):
    keys, before = (*FIRST, "fcs.1.weight", "head.weight"), Deep().state_dict()
    alone = as_one(found, lambda saved: {key: saved["OTTT"][key] for key in keys})
    assert all((alone[key] - before[key]).abs().max() > 1e-3 for key in keys)


def test_each_feedback_taught_something_else(found):
    weights = {float(found[1][0][name]["fc.weight"].sum()) for name in FEEDBACK}
    assert len(weights) == len(FEEDBACK)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_fit_that_stops_ends_with_every_bit(found, ranks):
    for mine in found[ranks]:
        whole, resumed = mine["whole"], mine["resumed"]
        assert differences(whole, resumed) == []
        states = [each["host"]["trainer"] for each in whole["callbacks"].values() if each["host"]]
        vectors = [v for each in states for k, v in each.items() if k.endswith("_extra_state")]
        assert any("eligibility" in str(unpack(each, "")) for each in vectors)  # it was carried
        assert "feedback.weight" in str(whole)


if __name__ == "__main__":
    share(main)
