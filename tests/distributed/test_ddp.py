"""Several processes with a share of each batch learn what one learns with the whole."""

import lightning.pytorch as pl
import pytest
import torch
from run_ranks import as_one, share, trainer
from torch import nn
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.functional import GaussianKernel
from lightning_accum.nn import LIF, Rewire, SparseLinear
from lightning_accum.optim import UpdateOptimizer

STEPS, INPUTS, OUTPUTS = 6, 5, 4
PAIR = {"lr_post": 0.3, "lr_pre": -0.2}
# Their running averages are of each process' own samples.
OWN_WAYS = ("BCM", "Covariance")
RULES = {
    "STDP": la.STDP(**PAIR), "STDP, nearest": la.STDP(**PAIR, trace_mode="nearest"),
    "TripletSTDP": la.TripletSTDP(0.3, 0.2, -0.2, -0.1), "MSTDP": la.MSTDP(**PAIR),
    "MSTDPET": la.MSTDPET(**PAIR),
    "MSTDPET, released": la.MSTDPET(**PAIR, reward=la.Neuromodulator(9.0, 0.5)),
    "KernelSTDP": la.KernelSTDP(GaussianKernel(0.2, 5.0, 0.1)),
    "DelayAdjustedSTDP": la.DelayAdjustedSTDP(0.3, -0.2), "Homeostasis": la.Homeostasis(0.1, 200.0),
    "Hebb": la.Hebb(0.05), "AntiHebb": la.AntiHebb(0.05), "Covariance": la.Covariance(0.05),
    "Oja": la.Oja(0.05), "Sanger": la.Sanger(0.05), "BCM": la.BCM(0.05),
    "WTAHebb": la.WTAHebb(0.05), "SoftHebb": la.SoftHebb(0.05),
}  # fmt: skip
WITHOUT_BIAS = ("DelayAdjustedSTDP", "Sanger")
# The rules that are tried with sums too: one of each way to evaluate terms.
SUMMED = ("STDP", "MSTDPET, released", "KernelSTDP", "DelayAdjustedSTDP", "Homeostasis", "Oja")
BIASED = {"params": ["weight", "bias"]}


def pieces(rank, ranks, steps=STEPS, inputs=INPUTS):
    """Each batch's share of this process, ragged, in the end nothing for most."""
    generator, batches = torch.Generator().manual_seed(3), []
    for size in (8, 8, 5, 1):  # of the last one process has all
        spikes = (torch.rand(steps, size, inputs, generator=generator) < 0.4).double()
        reward = torch.randn(size, generator=generator).double()
        mine = torch.arange(size).tensor_split(ranks)[rank]
        batches.append((spikes[:, mine], reward[mine]))
    return batches


class Model(pl.LightningModule):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.automatic_optimization = kind not in ("local", "stepped", "local, sparse")
        self.fc = nn.Linear(INPUTS, OUTPUTS).requires_grad_(False)
        if "sparse" in kind:
            self.fc, self.rewire = SparseLinear(INPUTS, OUTPUTS, 0.6), Rewire(0.25, start=0.5)
            self.fc.requires_grad_(False)
        nn.init.uniform_(self.fc.weight, 0.0, 1.0)
        if kind.startswith("automatic"):
            self.fc.requires_grad_(True)  # so that DDP wraps the module
        self.fc.register_buffer("delay", 3 * torch.rand(OUTPUTS, INPUTS))
        self.lif = LIF(OUTPUTS, tc_mem=5.0, v_threshold=0.4, time_dim=0)
        if kind == "hybrid":
            self.head = nn.Linear(OUTPUTS, 1)
        self.double()

    def training_step(self, batch, batch_idx):
        spikes, reward = batch
        self.lif.reset()
        out = self.lif(self.fc(spikes))
        if self.kind == "hybrid":
            loss = (self.head(out.sum(0)).squeeze(-1) - reward).square().sum()
            return {"loss": loss, "reward": reward}
        if self.kind.startswith("automatic"):
            return None
        if self.kind == "stepped":
            self.optimizers().step()
        return {"reward": reward}

    def on_train_batch_end(self, *args):
        if "sparse" in self.kind:
            self.rewire(self.fc)

    def configure_optimizers(self):
        if self.kind == "hybrid":
            return torch.optim.SGD(self.head.parameters(), lr=0.0)
        if self.kind.endswith("stepped"):
            return UpdateOptimizer(self.fc.parameters(), lr=0.5)
        return None


def fit(rule, kind, rank, ranks, every=1, **options):
    model = Model(kind)
    if rank:  # the first process' weights and synapses count
        nn.init.zeros_(model.fc.weight)
        if "sparse" in kind:
            model.fc.replace(torch.ones(len(model.fc.weight), dtype=torch.bool))
    rewarded = "MSTDP" in type(rule).__name__
    learns = CellTrainerCallback(
        rule,
        cells={"enc": la.CellSpec("fc", "lif")},
        input_keys=("reward",) if rewarded else (),
        apply_every_n_batches=None if kind.endswith("stepped") else every,
        time_dim=0,
        **options,
    )
    trainer(ranks, learns).fit(model, DataLoader(pieces(rank, ranks), batch_size=None))
    return model


def runs():
    """Name, rule, kind of model, batches that are applied together, and options."""
    for name, rule in RULES.items():
        for reduce in ("mean", "sum") if name in SUMMED else ("mean",):
            params = {} if name in WITHOUT_BIAS else BIASED
            yield f"{name}, {reduce}", rule, "local", 1, {"batch_reduction": reduce, **params}
    stdp, total = RULES["STDP"], {"batch_reduction": "sum"}
    for kind in ("hybrid", "stepped"):
        yield kind, stdp, kind, 1, {}
    for kind in ("automatic", "automatic, stepped"):
        yield kind, la.STDP(0.1, -0.2), kind, 1, BIASED
    for kind in ("automatic, sparse", "automatic, sparse, stepped"):
        yield kind, stdp, kind, 1, BIASED
    for every in (1, 2):
        yield f"sparse, {every}", stdp, "local, sparse", every, total
    yield "grouped", stdp, "local", 2, total


def main(rank, ranks, folder):
    found = {
        name: [p.detach() for p in fit(rule, kind, rank, ranks, every, **more).fc.parameters()]
        for name, rule, kind, every, more in runs()
    }
    if ranks > 1:
        try:
            fit(RULES["STDP"], "local", rank, ranks, batch_reduction="amax")
        except ValueError as error:
            (folder / f"refused by {rank}").write_text(str(error))
    return found


NAMES = [name for name, *_ in runs()]


@pytest.mark.parametrize("name", NAMES)
def test_as_one_process_with_the_whole_batch(found, name):
    as_one(found, lambda saved: saved[name], atol=torch.inf if name.startswith(OWN_WAYS) else 1e-11)


def test_every_rule_has_learned(found):
    weights = {float(weight.sum()) for weight, _ in found[1][0].values()}
    assert len(weights) == len(NAMES)  # each has done something else


@pytest.mark.usefixtures("found")
def test_a_maximum_over_samples_is_refused(folder):
    for rank in range(2):
        said = (folder / f"refused by {rank}").read_text()
        assert "`batch_reduction` of cell `enc` should be 'mean' or 'sum'" in said


if __name__ == "__main__":
    share(main)
