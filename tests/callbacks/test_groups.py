"""Batches applied together or as a stream, and batches in which little or nothing happens."""

import logging

import callback_helpers as cb
import pytest
import torch
from test_resume import Streaming

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF
from lightning_accum.optim import UpdateOptimizer


def test_a_group_is_bounded_as_one_change(tmp_path):
    """The parts of all its batches meet the bound together, at the weight of before."""
    net, data = cb.Net(), cb.loader(2)
    parts = [cb.parts_by_hand(net, x) for x, _ in data]
    pos, neg = (sum(side) for side in zip(*parts, strict=True))
    weight = net.fc.weight.detach().clone()
    rule = STDP(**cb.RULE, time_dim=0)

    def bound(_, __):
        cell, _state = rule.get_cell("enc")
        assert cell.updater is not None
        cell.updater.weight.fullbound("multiplicative", 1.0, 0.0)

    cb.trainer(
        tmp_path, cb.callback(rule, apply_every_n_batches=2), cb.Probe("on_fit_start", bound)
    ).fit(net, data)
    assert cb.close(net.fc.weight.detach(), weight + (1 - weight) * pos - weight * neg)


def test_a_smaller_last_batch_of_a_stream(tmp_path):
    rule, net = cb.Noting(), Streaming()
    cb.trainer(tmp_path, cb.callback(rule, carry=True)).fit(net, cb.loader(3, last=1))
    assert [window.shape[1] for window in rule.windows] == [cb.BATCH, cb.BATCH, 1]
    assert torch.isfinite(net.fc.weight).all()


def test_no_sample_at_all(tmp_path):
    class Empty(cb.Net):
        def training_step(self, batch, batch_idx):
            self(batch[0][:0])

    net = Empty()
    run = cb.trainer(tmp_path, cb.callback(), logger=True)
    with cb.warning_of("or without samples"):
        run.fit(net, cb.loader(2))
    assert cb.close(net.fc.weight, cb.Net().fc.weight)
    assert run.global_step == 2


class Called(cb.Net):
    """Calls its rule in each step; the callback applies the changes."""

    def __init__(self, rule):
        super().__init__()
        self.rule = [rule]  # which is not a module of the model
        self.lif = LIF(4, tc_mem=10.0)

    def training_step(self, batch, batch_idx):
        self.lif.reset()
        for x in batch[0].transpose(0, 1):
            self.lif(self.fc(x))
            self.rule[0]()


@pytest.mark.parametrize("carry", [True, False])
def test_a_rule_that_is_called_in_each_step(carry, tmp_path, caplog):
    rule, data = STDP(**cb.RULE, carry=carry), cb.loader(3)
    net, expected = Called(rule), cb.fit_by_hand(cb.Net(), list(data))[-1]
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        use = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")})
        cb.trainer(tmp_path, use).fit(net, data)
    assert cb.close(net.fc.weight, expected) == carry
    assert ("Every window of `enc` was a single step" in caplog.text) == (not carry)


def test_a_rule_keeps_its_own_parameters(tmp_path):
    net = cb.Net()
    net.fc = torch.nn.Linear(6, 4, dtype=torch.float64)
    torch.nn.init.constant_(net.fc.weight, 0.4)  # so that neurons fire
    use = cb.callback(STDP(**cb.RULE, time_dim=0, params=("weight", "bias")))
    cb.trainer(tmp_path, use).fit(net, cb.loader(2))
    assert use.host.updaters["enc"].names == ("weight", "bias")


def test_what_others_do_in_the_same_step_is_no_update(tmp_path):
    class Shifted(cb.Net):
        def training_step(self, batch, batch_idx):
            super().training_step(batch, batch_idx)
            self.optimizers().step()
            with torch.no_grad():
                self.fc.weight.add_(100.0)

        def configure_optimizers(self):
            return UpdateOptimizer(self.fc.parameters())

    use = cb.trainer(tmp_path, cb.callback(), log_every_n_steps=1)
    use.fit(Shifted(), cb.loader(2))
    assert use.callback_metrics["updates/enc/weight/update_norm"] < 10.0


def test_what_is_not_looked_at_while_it_runs_is_told_when_statistics_are_logged(tmp_path):
    class Stepwise(cb.Net):
        """One step a batch, and what is not a spike in its last but one."""

        def training_step(self, batch, batch_idx):
            self.lif.reset()
            x = batch[0][:, 0] * (0.5 if batch_idx == 3 else 1.0)
            self.lif(self.fc(x))

    for every in (1, 100):
        net = Stepwise()
        net.lif = LIF(4)
        use = cb.callback(STDP(**cb.RULE), log=every == 1)
        with pytest.raises(ValueError, match=r"Found 0\.5 before the connection of cell `enc`"):
            cb.trainer(tmp_path, use, log_every_n_steps=every).fit(net, cb.loader(5))
