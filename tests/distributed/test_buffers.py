"""Thresholds that adapt to activity: each process' own, or averaged."""

import pytest
import torch
from callback_helpers import Net
from run_ranks import as_one, share, trainer
from torch.testing import assert_close
from torch.utils.data import DataLoader

import lightning_accum as la
from lightning_accum.callbacks import AverageBuffers, CellTrainerCallback
from lightning_accum.nn import AdaptiveLIF, RewardBaseline


class Model(Net):
    def __init__(self, steps, wrapped):
        super().__init__()
        self.steps, self.errors = steps, []
        self.fc.requires_grad_(wrapped).weight.data.mul_(2)
        self.lif = AdaptiveLIF(4, tc_mem=5.0, v_threshold=0.6, theta_plus=0.2, time_dim=0)
        self.register_buffer("seen", torch.zeros(2, 1))
        self.baseline = RewardBaseline(0.9, contexts=2)
        self.double()

    def training_step(self, batch, batch_idx):
        self.lif.reset()
        self.lif(self.fc(batch[: self.steps]))
        self.seen[1] += batch.sum()
        reward = batch.mean((0, 2))
        self.errors.append(self.baseline(reward, (reward > 0.4).long()))


def fit(rank, ranks, steps, names, wrapped):
    model = Model(steps, wrapped)
    generator = torch.Generator().manual_seed(0)
    data = (torch.rand(6, 5, 8, 6, generator=generator) < 0.4).double()
    mine = data[:, :, torch.arange(8).tensor_split(ranks)[rank]]
    cells = {"enc": la.CellSpec("fc", "lif")}
    learns = CellTrainerCallback(la.STDP(0.06, -0.04), cells, time_dim=0)
    run = trainer(ranks, learns, AverageBuffers(names), epochs=1)
    run.fit(model, DataLoader(mine, batch_size=None))
    return {
        "theta": model.lif.theta, "seen": model.seen, "weight": model.fc.weight.detach(),
        "expected": model.baseline.mean, "errors": torch.stack(model.errors),
    }  # fmt: skip


RUNS = {
    "one step a batch": (1, ["lif.theta", "seen"], False),
    "one step a batch, wrapped": (1, ["lif.theta", "seen"], True),
    "five steps a batch": (5, ["lif.theta"], False),
    "each its own": (5, [], False),
}


def main(rank, ranks, folder):
    return {name: fit(rank, ranks, *options) for name, options in RUNS.items()}


@pytest.mark.parametrize("name", ["one step a batch", "one step a batch, wrapped"])
def test_as_one_process_where_nothing_happens_between(found, name):
    keys = ("theta", "weight", "expected")
    as_one(found, lambda saved: [saved[name][key] for key in keys], 1e-9, 1e-12)
    alone, first, second = (ranks[name] for ranks in (found[1][0], *found[2]))
    assert float(alone["theta"].min()) > 0
    assert_close(2 * first["seen"], alone["seen"])  # a mean, of what each has summed
    assert torch.equal(first["seen"], second["seen"])
    errors = torch.cat([first["errors"], second["errors"]], 1)
    assert_close(errors, alone["errors"], rtol=1e-12, atol=1e-12)
    assert alone["expected"].unique().numel() == 2


def test_within_a_batch_each_process_has_its_own(found):
    alone, first, second = (ranks["five steps a batch"] for ranks in (found[1][0], *found[2]))
    assert torch.equal(first["theta"], second["theta"])
    assert torch.equal(first["weight"], second["weight"])
    # no spike of the other half of the batch raises a threshold before its end
    assert_close(first["theta"], alone["theta"], rtol=0.1, atol=0)
    assert not torch.equal(first["theta"], alone["theta"])


def test_without_it_they_drift_apart(found):
    first, second = (rank["each its own"] for rank in found[2])
    assert not torch.allclose(first["theta"], second["theta"])
    assert torch.equal(first["weight"], second["weight"])  # all the same


def test_a_buffer_that_is_not_there(tmp_path):
    run = trainer(1, AverageBuffers(["lif.theta_"]), default_root_dir=tmp_path)
    with pytest.raises(AttributeError, match=r"Found \['lif.theta_'\].*did you mean `lif.theta`"):
        run.fit(Model(1, True), DataLoader(torch.zeros(1, 5, 1, 6), batch_size=None))


if __name__ == "__main__":
    share(main)
