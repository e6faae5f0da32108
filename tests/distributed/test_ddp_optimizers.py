"""Optimizers in two processes end as in one, also if handed updates as gradients, and log it."""

import lightning.pytorch as pl
import pytest
import torch
from run_ranks import as_one, share, trainer
from test_ddp import INPUTS, OUTPUTS, pieces
from torch import nn
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum.callbacks import CellTrainerCallback, OnlineProbe, UpdateMonitor
from lightning_accum.nn import LIF
from lightning_accum.optim import AdaBelief, Noam

# What trains the head by its gradient, and what the connection by its updates: the callback alone,
# or the same optimizer, to which they are handed as gradients.
FITS = {
    "AdaBelief": ("AdaBelief", False), "Noam": ("Noam", False),
    "AdaBelief for both": ("AdaBelief", True),
    "AdaBelief without a head": (None, True),
}  # fmt: skip


class Model(pl.LightningModule):
    def __init__(self, head, handed, ranks):
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = not handed
        self.handed, self.ranks, self.made = handed, ranks, head or "AdaBelief"
        self.fc = nn.Linear(INPUTS, OUTPUTS).requires_grad_(False)
        nn.init.uniform_(self.fc.weight, 0.0, 1.0)
        self.lif = LIF(OUTPUTS, tc_mem=5.0, v_threshold=2.0, time_dim=0)
        self.head = nn.Linear(OUTPUTS, 1).requires_grad_(head is not None)
        self.double()

    def loss(self, batch):
        spikes, target = batch
        self.lif.reset()
        out = self.head(self.lif(self.fc(spikes)).sum(0)).squeeze(-1)
        return self.ranks * (out - target).square().sum() / 10  # DDP averages over processes

    def training_step(self, batch, batch_idx):
        if not self.handed:
            return self.loss(batch)
        optimizer = self.optimizers()
        optimizer.zero_grad()
        loss = self.loss(batch)
        if loss.requires_grad:
            self.manual_backward(loss)
        (callback,) = (c for c in self.trainer.callbacks if isinstance(c, CellTrainerCallback))
        callback.updates_as_gradients()
        optimizer.step()
        self.lr_schedulers().step()

    def configure_optimizers(self):
        trained = self if self.handed else self.head
        if self.made == "Noam":
            optimizer = Noam(trained.parameters(), lr=0.3, warmup=3, d_model=4)
        else:
            optimizer = AdaBelief(trained.parameters(), lr=0.1, weight_decay=0.1)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.8)
        return [optimizer], [{"scheduler": schedule, "interval": "step"}]


def fit(name, rank, ranks):
    model = Model(*FITS[name], ranks)
    start = {key: param.detach().clone() for key, param in model.named_parameters()}
    if rank:  # the first process' weights count
        nn.init.zeros_(model.fc.weight)
    cells = {"enc": la.CellSpec("fc", "lif", ("weight", "bias"))}
    learns = CellTrainerCallback(la.STDP(0.06, -0.04), cells, time_dim=0)
    probe = OnlineProbe("lif", 2, time_dim=0, labels=lambda batch: (batch[1] > 0).long())
    monitors = [] if FITS[name][1] else [UpdateMonitor("parameter")]
    run = trainer(ranks, learns, probe, *monitors, log_every_n_steps=7)
    run.fit(model, DataLoader(pieces(rank, ranks), batch_size=None))
    params = {key: param.detach() for key, param in model.named_parameters()}
    state = run.optimizers[0].state_dict()
    end = {"start": start, "params": params, "state": state, "steps": run.global_step}
    return end, dict(run.callback_metrics)


def main(rank, ranks, folder):
    return {name: fit(name, rank, ranks) for name in FITS}


@pytest.mark.parametrize("name", FITS)
def test_as_one_process_with_the_whole_batch(found, name):
    alone = as_one(found, lambda saved: saved[name][0])
    for key, value in alone["params"].items():
        trained = name != "AdaBelief without a head" or key.startswith("fc")
        assert torch.equal(value, alone["start"][key]) != trained
    (group,) = alone["state"]["param_groups"]
    assert group["lr"] == pytest.approx((0.3 if "Noam" in name else 0.1) * 0.8**8)
    assert alone["steps"] == 8
    logged = as_one(found, lambda saved: saved[name][1], 1e-6, 0)
    assert float(logged["updates/enc/weight/update_norm"]) > 0
    if not FITS[name][1]:
        names = {"change_ratio/head.weight", "updates/head.bias/ratio", "updates/fc.bias/nonfinite"}
        assert {*names, "activity/enc/silent_share"} < set(logged)
        assert 0 < float(logged["activity/enc/firing_rate"]) < 1
    assert 0.2 < float(logged["linear_probe/lif/train"]) < 1


def test_what_is_handed_over_is_stepped_otherwise_than_what_is_applied(found):
    fits = found[1][0]
    weights = [fits[name][0]["params"]["fc.weight"] for name in ("AdaBelief", "AdaBelief for both")]
    assert not torch.allclose(*weights)
    assert torch.equal(weights[0], fits["Noam"][0]["params"]["fc.weight"])


if __name__ == "__main__":
    share(main)
