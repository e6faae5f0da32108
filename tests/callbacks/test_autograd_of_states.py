"""Graphs of states in fits whose batches are pieces of one stream, so that nothing is reset."""

import callback_helpers as cb
import lightning.pytorch as pl
import torch
from torch import nn

from lightning_accum import CellSpec, DeltaRule
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LeakyIntegrator, SurrogateLIF


class Stream(pl.LightningModule):
    """Takes a batch step by step, with neurons that pass gradients through time."""

    def __init__(self, backpropagates=True):
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = backpropagates
        self.fc = nn.Linear(cb.INPUTS, 6).double()
        self.lif = SurrogateLIF(6, gradient="time", recurrent=True).double()
        self.readout, self.leak = nn.Linear(6, 2).double(), LeakyIntegrator(2)

    def loss(self, batch):
        steps = batch[0].transpose(0, 1)
        return torch.stack([self.leak(self.readout(self.lif(self.fc(x)))) for x in steps])

    def training_step(self, batch, batch_idx):
        kept = (self.leak._state["y"], self.lif._state["v"])
        if not self.automatic_optimization:
            assert not any(state.requires_grad for state in kept if state is not None)
        y = self.loss(batch)
        return {"loss": y.square().mean(), "error": y.detach()[-1]}

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1) if self.automatic_optimization else None


def test_batches_learn_as_if_the_graph_was_cut_between_them(tmp_path):
    data, net, other = cb.loader(4), Stream(), Stream()
    cb.trainer(tmp_path).fit(net, data)
    optimizer = torch.optim.SGD(other.parameters(), 0.1)
    for batch in data:
        optimizer.zero_grad()
        other.loss(batch).square().mean().backward()
        optimizer.step()
        other.lif.detach(), other.leak.detach()
    for found, expected in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(found, expected)
    assert not torch.equal(net.lif.recurrent.weight, Stream().lif.recurrent.weight)


def test_what_is_not_backpropagated_leaves_no_graph_to_the_next_batch(tmp_path):
    net = Stream(backpropagates=False)
    rule = DeltaRule(0.1, tc_readout=20.0)
    learner = CellTrainerCallback(
        rule, {"out": CellSpec("readout", "leak")}, input_keys=("error",), carry=True
    )
    before = net.readout.weight.clone()
    cb.trainer(tmp_path, learner).fit(net, cb.loader(4))
    assert not torch.equal(net.readout.weight, before)
