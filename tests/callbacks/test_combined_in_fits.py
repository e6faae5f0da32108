"""A fit combines both parts of a change where nothing reads them, and statistics change nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from callback_helpers import RULE, Net, callback, loader, trainer
from lightning.pytorch.loggers import CSVLogger

from lightning_accum import STDP, CellSpec, attach_updater, get_updater
from lightning_accum.callbacks import FabricCellTrainer
from lightning_accum.functional import bound_power
from lightning_accum.optim import UpdateOptimizer


class Seen(STDP):
    """Notes whether the difference of both parts is pending after each evaluation."""

    _fixed_terms = False  # by which small windows are not combined

    def forward(self, **inputs: Any) -> None:
        super().forward(**inputs)
        (_, updater), *_ = [(n, u) for n, (u, _) in enumerate(self.updaters.values())]
        self.seen = [*getattr(self, "seen", []), updater.weight.combined]


def fit(net: Net, path: Any, every: int = 1, log: bool = True, **options: Any) -> list[bool]:
    rule = Seen(**RULE, time_dim=0)
    learns = callback(rule, apply_every_n_batches=every, log=log)
    trainer(path, learns, logger=CSVLogger(path), **options).fit(net, loader(6))
    assert get_updater(net.fc) is None or get_updater(net.fc).weight.keep_parts is not False
    return rule.seen


def test_weights_do_not_depend_on_what_is_logged(tmp_path):
    weights = []
    for log, log_every in ((True, 1), (True, 4), (True, 50), (False, 1)):
        net = Net()
        assert all(fit(net, tmp_path, log=log, log_every_n_steps=log_every))
        weights.append(net.fc.weight)
    assert not torch.equal(weights[0], Net().fc.weight)
    assert all(torch.equal(weight, weights[0]) for weight in weights)


def own_optimizer(net: Net) -> None:
    net.optimizers_given, net.automatic_optimization = UpdateOptimizer([net.fc.weight]), True


def kept(net: Net) -> None:
    attach_updater(net.fc, "weight").weight.keep_parts = True


def bounded(net: Net) -> None:
    attach_updater(net.fc, "weight").weight.fullbound(bound_power, 1.0, 0.0, power=1.0)


@pytest.mark.parametrize(
    ("prepare", "every"), [(kept, 1), (bounded, 1), (lambda net: None, 2), (own_optimizer, None)]
)
def test_parts_are_kept_where_something_needs_each(prepare, every, tmp_path):
    """Also while updates of several batches are pending, and where the module applies them."""
    net = Net()
    prepare(net)
    assert not any(fit(net, tmp_path, every=every))


def test_a_step_of_fabric_combines_and_what_it_leaves_pending_has_parts():
    net, rule = Net(), Seen(**RULE, time_dim=0)
    learner = FabricCellTrainer(rule, {"enc": CellSpec("fc", "lif")})
    learner.setup(net)
    (x, _), *_ = loader()
    for evaluate in (learner.step, learner.accumulate):
        with learner.batch():
            net(x)
        evaluate()
    assert rule.seen == [True, False]
    assert get_updater(net.fc).weight.neg is not None
    learner.release()


@pytest.mark.parametrize("every", [1, 2])
def test_a_batch_that_is_evaluated_by_hand_has_the_same_statistics(every: int, tmp_path) -> None:
    class ByHand(Net):
        def training_step(self, batch: Any, batch_idx: int) -> None:
            super().training_step(batch, batch_idx)
            rule()

    found = []
    for kind in (Net, ByHand):
        rule = STDP(**RULE, time_dim=0)
        fits = trainer(
            tmp_path, callback(rule), logger=CSVLogger(tmp_path), log_every_n_steps=every
        )
        fits.fit(kind(), loader(6))
        names = "ratio", "pos_norm", "neg_norm"
        found.append([float(fits.logged_metrics[f"updates/enc/weight/{name}"]) for name in names])
    assert found[0] == pytest.approx(found[1])
    assert all(found[0])
