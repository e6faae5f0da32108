"""Batches applied together or as a stream, the rate of what is applied, and batches of nothing."""

import functools
import logging
import re
import warnings

import callback_helpers as cb
import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from test_optimization_modes import AutomaticHead
from test_resume import Streaming, halve
from torch.optim import lr_scheduler as lrs

from lightning_accum import STDP, LocalLearningWarning, RuleTrainer
from lightning_accum.nn import LIF, LeakyIntegrator, SurrogateLIF
from lightning_accum.optim import UpdateOptimizer


def test_a_group_is_bounded_as_one_change(tmp_path):
    """The parts of all its batches meet the bound together, at the weight of before."""
    net, data = cb.Net(), cb.loader(2)
    parts = [cb.parts_by_hand(net, x) for x, _ in data]
    pos, neg = (sum(side) for side in zip(*parts, strict=True))
    weight = net.fc.weight.detach().clone()
    rule = RuleTrainer(STDP(**cb.RULE), time_dim=0)

    def bound(*_):
        rule.get_cell("enc")[0].updater.weight.fullbound("multiplicative", 1.0, 0.0)

    use, sets = cb.callback(rule, apply_every_n_batches=2), cb.Probe("on_fit_start", bound)
    cb.trainer(tmp_path, use, sets).fit(net, data)
    assert cb.close(net.fc.weight.detach(), weight + (1 - weight) * pos - weight * neg)


def test_a_smaller_last_batch_of_a_stream(tmp_path):
    rule, net = cb.Noting(), Streaming()
    net.fc = torch.nn.Linear(6, 4, dtype=torch.float64)
    torch.nn.init.constant_(net.fc.weight, 0.4)  # so that neurons fire
    use = cb.callback(rule, carry=True, params=("weight", "bias"))
    cb.trainer(tmp_path, use).fit(net, cb.loader(3, last=1))
    assert [each.shape[1] for each in rule.windows[::2]] == [cb.BATCH, cb.BATCH, 1]
    assert torch.isfinite(net.fc.weight).all()
    assert use.host.updaters["enc"].names == ("weight", "bias")


def test_what_is_not_backpropagated_leaves_no_graph_to_the_next_batch(tmp_path):
    class Steps(Streaming):
        def __init__(self):
            super().__init__()
            self.lif, self.leak = SurrogateLIF(4, gradient="time"), LeakyIntegrator(4)

        def note(self):
            kept = [*self.lif._state.values(), *self.leak._state.values()]
            seen.append(any(each is not None and each.requires_grad for each in kept))

        def training_step(self, batch, batch_idx):
            self.note()
            for x in batch[0].transpose(0, 1):
                self.leak(self.lif(self.fc(x)))
            self.note()

    seen = []
    cb.trainer(tmp_path, cb.callback(time_dim=None, carry=True)).fit(Steps(), cb.loader(4))
    assert seen == [False, True] * 4


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

    def training_step(self, batch, batch_idx):
        self.lif.reset()
        for x in batch[0].transpose(0, 1):
            self.lif(self.fc(x))
            self.trainer.callbacks[0].cell_trainer()


@pytest.mark.parametrize("carry", [True, False])
def test_a_rule_that_is_called_in_each_step(carry, tmp_path, caplog):
    rule, data, net = RuleTrainer(STDP(**cb.RULE), carry=carry), cb.loader(3), Called()
    net.lif, expected = LIF(4, tc_mem=10.0), cb.fit_by_hand(cb.Net(), list(data))[-1]
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        cb.trainer(tmp_path, cb.callback(rule)).fit(net, data)
    assert cb.close(net.fc.weight, expected) == carry
    assert ("Every window of `enc` was a single step" in caplog.text) == (not carry)


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
        use = cb.callback(time_dim=None, log=every == 1)
        with pytest.raises(ValueError, match=r"Found 0\.5 before the connection of cell `enc`"):
            cb.trainer(tmp_path, use, log_every_n_steps=every).fit(net, cb.loader(5))


# ---------------------------------------------------------------------- schedules
def rates(folder, model, **options):
    """The rate of each applied update, as the callback logs it."""
    name = "updates/enc/weight/lr"
    seen = cb.Probe("on_train_batch_end", lambda run, _: run.callback_metrics.get(name))
    run = cb.trainer(
        folder, cb.callback(**options), seen, LearningRateMonitor("step"),
        max_epochs=2, logger=CSVLogger(folder), log_every_n_steps=1,
    )  # fmt: skip
    run.fit(model, cb.loader(4))
    return [float(rate) for rate in seen.found if rate is not None]


@pytest.mark.parametrize("model", [cb.Net, AutomaticHead])
def test_by_update_and_by_epoch(model, tmp_path):
    by_update = rates(tmp_path, model(), lr_scheduler=halve)
    assert by_update == [0.5**i for i in range(8)]
    by_epoch = rates(tmp_path, model(), lr_scheduler=halve, lr_interval="epoch")
    assert by_epoch == [1.0] * 4 + [0.5] * 4
    grouped = rates(tmp_path, model(), lr_scheduler=halve, apply_every_n_batches=3)
    assert grouped == [1, 0.5, 0.5, 0.5, 0.25, 0.125]
    steps = functools.partial(lrs.StepLR, step_size=2, gamma=0.1)
    assert rates(tmp_path, model(), lr_scheduler=steps, lr=3.0)[:3] == pytest.approx([3, 3, 0.3])


cosine = functools.partial(functools.partial, lrs.CosineAnnealingLR)
one_cycle = functools.partial(functools.partial, lrs.OneCycleLR, max_lr=1.0, cycle_momentum=False)


def findings(folder, scheduler, interval, **options):
    """What is said of a schedule in a fit of 3 epochs of 4 batches, or so many updates."""
    learner = cb.callback(lr_scheduler=scheduler, lr_interval=interval, apply_every_n_batches=2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        cb.trainer(folder, learner, **{"max_epochs": 3, **options}).fit(cb.Net(), cb.loader(4))
    kinds = [w for w in found if issubclass(w.category, LocalLearningWarning)]
    return [str(w.message) for w in kinds if "`lr_interval" in str(w.message)]


linear = functools.partial(functools.partial, lrs.LinearLR)


class Cycle(lrs.LambdaLR):
    """Goes up and down, in a unit of its own."""

    T_max = 3

    def __init__(self, optimizer):
        super().__init__(optimizer, lambda step: 1 / (1 + step % self.T_max))


@pytest.mark.parametrize(("scheduler", "interval", "options", "words"), [
    (cosine(T_max=12), "epoch", {}, r"T_max = 12`, the number of its batches.*T_max=3`, or"),
    (cosine(T_max=6), "epoch", {}, r"T_max = 6`, the number of its updates.*T_max=6` and"),
    (one_cycle(total_steps=12), "epoch", {}, "total_steps = 12`.*total_steps=3`"),
    (linear(total_iters=6), "epoch", {}, "total_iters = 6`.*total_iters=3`"),
    (cosine(T_max=3), "update", {}, r"T_max = 3`, the number of its epochs.*T_max=6`, or"),
    (cosine(T_max=3), "epoch", {}, None),
    (cosine(T_max=6), "update", {}, None),
    (cosine(T_max=100), "epoch", {}, None),  # the first epochs of a longer fit
    (cosine(T_max=24), "epoch", {}, None),
    (cosine(T_max=12), "epoch", {"limit_train_batches": 4}, None),  # a trial
    (cosine(T_max=12), "epoch", {"max_steps": 4}, None),
    (cosine(T_max=12), "epoch", {"max_epochs": -1, "max_steps": 4}, None),
    (cosine(T_max=1), "update", {"max_epochs": 1}, None),
    (one_cycle(total_steps=6), "update", {}, None),
    (linear(total_iters=3), "update", {}, None),  # a warm-up
    (functools.partial(lrs.PolynomialLR, total_iters=3), "epoch", {}, None),
    (functools.partial(lrs.StepLR, step_size=12), "epoch", {}, None),
    (Cycle, "update", {}, None),
    (None, "epoch", {}, None),
])  # fmt: skip
def test_a_schedule_in_the_wrong_unit_is_told(scheduler, interval, options, words, tmp_path):
    found = findings(tmp_path, scheduler, interval, **options)
    assert len(found) == (words is not None)
    assert all(re.search(f"{words}.*\\[setup\\]$", text) for text in found)


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before")
@pytest.mark.parametrize("scheduler", [None, halve])
@pytest.mark.parametrize("lr", [0.5, 0.25])
def test_another_rate_in_a_fit_that_resumes(lr, scheduler, tmp_path):
    path, options = tmp_path / "middle.ckpt", {"lr_scheduler": scheduler}
    first = cb.trainer(tmp_path, cb.callback(lr=0.5, **options), max_epochs=1)
    first.fit(cb.Net(), cb.loader(2))
    first.save_checkpoint(path)
    run = cb.trainer(tmp_path, cb.callback(lr=lr, **options), max_epochs=2)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run.fit(cb.Net(), cb.loader(2), ckpt_path=path)
    texts = [str(w.message) for w in found if "no effect" in str(w.message)]
    assert len(texts) == (lr != 0.5)
    assert all("that is resumed, 0.5" in text and "Found `lr = 0.25`" in text for text in texts)
