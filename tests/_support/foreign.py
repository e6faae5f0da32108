"""What holds for cells with the neurons of any library; the tests of each are subclasses."""

from __future__ import annotations

import lightning.pytorch as pl
import torch
from callback_helpers import trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import STDP, Cell, CellSpec
from lightning_accum.callbacks import CellTrainerCallback

INPUTS, OUTPUTS, STEPS, BATCH = 7, 5, 24, 3
LR_POST, LR_PRE, TC_POST, TC_PRE = 0.02, -0.015, 9.0, 14.0


def raster(seed, steps=STEPS, batch=BATCH):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(steps, batch, INPUTS, generator=generator) < 0.4).double()


def pairs(pre, post):
    """The change of a weight, ``[out, in]``: every pair of spikes counts by its lag."""
    post = post.detach().double()
    time = torch.arange(len(pre)).double()
    lag = time[:, None] - time
    after_pre, after_post = (
        torch.where(lag >= 0, torch.exp(-lag / tc), 0.0).double() for tc in (TC_PRE, TC_POST)
    )
    up = torch.einsum("tbo,tu,ubi->boi", post, after_pre, pre)
    down = torch.einsum("tbi,tu,ubo->boi", pre, after_post, post)
    return (LR_POST * up + LR_PRE * down).mean(0)


class Net(nn.Module):
    """A linear connection and a neuron; a subclass says how its library runs them over time."""

    time_dim: int | None = None

    def __init__(self, neuron, gain=1.0):
        super().__init__()
        self.connection = nn.Linear(INPUTS, OUTPUTS, bias=False, dtype=torch.float64)
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            weight = torch.rand(OUTPUTS, INPUTS, generator=generator, dtype=torch.float64)
            self.connection.weight.copy_(gain * weight)
        self.neuron = neuron

    def forward(self, pre):
        """Spikes ``[T, B, out]`` for spikes ``[T, B, in]``, from the state it is in."""
        raise NotImplementedError

    def rest(self):
        """Brings the neuron to rest."""
        raise NotImplementedError

    @property
    def change(self):
        """What has accumulated for the weight."""
        accumulator = Cell(self.connection, self.neuron).updater.weight
        return accumulator.update(self.connection.weight)


def rule(net):
    stdp = STDP(LR_POST, LR_PRE, TC_POST, TC_PRE, time_dim=net.time_dim)
    stdp.register_cell("cell", Cell(net.connection, net.neuron))
    return stdp


def close(actual, expected):
    assert expected.abs().max() > 1e-3  # the neurons spike, and neither side cancels the other
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


class Learner(pl.LightningModule):
    """Runs a net on every batch, and keeps what went in and came out."""

    def __init__(self, net):
        super().__init__()
        self.automatic_optimization = False
        self.net = net
        self.seen = []

    def training_step(self, batch, batch_idx):
        pre = batch[0].transpose(0, 1)
        self.net.rest()
        self.seen.append((pre, self.net(pre).detach()))

    def configure_optimizers(self):
        return None


class Foreign:
    """A subclass has a fixture `net`."""

    def test_batches_after_a_reset_are_new_samples(self, net):
        stdp = rule(net)
        expected = torch.zeros(OUTPUTS, INPUTS).double()
        batches = [raster(2), raster(2), raster(3, batch=BATCH - 1)]  # the last one is smaller
        answers = []
        for pre in batches:
            net.rest()
            answers.append(net(pre))
            assert 0.02 < answers[-1].mean() < 0.98
            assert set(answers[-1].unique().tolist()) == {0.0, 1.0}
            stdp()
            stdp.clear()
            expected += pairs(pre, answers[-1])
        assert torch.equal(answers[0], answers[1])
        close(net.change, expected)

    def test_learns_under_a_lightning_trainer(self, net):
        learner = Learner(net)
        before = net.connection.weight.detach().clone()
        stdp = STDP(LR_POST, LR_PRE, TC_POST, TC_PRE, time_dim=net.time_dim)
        spec = CellSpec("net.connection", "net.neuron")
        run = trainer(None, CellTrainerCallback(stdp, cells={"cell": spec}), max_epochs=2)
        samples = raster(4, batch=2 * BATCH + 1).transpose(0, 1)  # and the last batch is of one
        run.fit(learner, DataLoader(TensorDataset(samples), batch_size=BATCH))
        assert run.global_step == len(learner.seen) == 6
        expected = sum(pairs(pre, post) for pre, post in learner.seen)
        close(net.connection.weight.detach() - before, expected)
