"""Nothing stays behind: no hook, no module, no monitor, however a fit ends."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from callback_helpers import (
    RULE,
    Net,
    Probe,
    Validated,
    callback,
    clean,
    close,
    fit_by_hand,
    loader,
    trainer,
)

from lightning_accum import STDP
from lightning_accum.observe import Monitor
from lightning_accum.optim import UpdateOptimizer


def fail(*_: Any) -> None:
    raise OSError("on purpose")


class FailsInStep(Net):
    """Raises in the middle of the third training step."""

    fails = True

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self(batch[0])
        if self.fails and batch_idx == 2:
            fail()


@pytest.mark.parametrize(
    "hook",
    [
        "setup",
        "on_fit_start",
        "on_sanity_check_start",
        "on_train_start",
        "on_train_batch_start",
        "on_train_batch_end",
        "on_validation_start",
        "on_validation_batch_end",
        "on_train_epoch_end",
        "on_train_end",
        "on_fit_end",
        "teardown",
    ],
)
@pytest.mark.parametrize("first", [True, False])
def test_after_another_callback_fails(hook: str, first: bool, tmp_path: Path) -> None:
    net, use, other = Validated(), callback(), Probe(hook, fail)
    order = [other, use] if first else [use, other]
    with pytest.raises(OSError, match="on purpose"):
        trainer(tmp_path, *order).fit(net, loader(2), loader(1, seed=9))
    assert clean(net)
    net.train()  # Lightning does not, after a failure in validation
    expected = fit_by_hand(net, list(loader(3)))[-1]
    trainer(tmp_path, use).fit(net, loader(3), loader(1, seed=9))
    assert close(net.fc.weight, expected)
    assert clean(net)


@pytest.mark.parametrize("every", [1, 2, 5])
def test_after_a_step_fails_the_next_fit_begins_with_nothing(every: int, tmp_path: Path) -> None:
    net, use = FailsInStep(), callback(apply_every_n_batches=every)
    with pytest.raises(OSError, match="on purpose"):
        trainer(tmp_path, use).fit(net, loader(4))
    assert clean(net)
    net.fails = False
    expected = fit_by_hand(net, list(loader(4)), every=every)[-1]
    trainer(tmp_path, use).fit(net, loader(4))
    assert close(net.fc.weight, expected)


def test_the_modules_own_optimizer_is_let_go(tmp_path: Path) -> None:
    class Own(Net):
        def configure_optimizers(self) -> Any:
            return self.kept

        def training_step(self, batch: Any, batch_idx: int) -> None:
            self(batch[0])
            self.optimizers().step()

    net = Own()
    net.kept = UpdateOptimizer(net.parameters())
    expected = fit_by_hand(Net(), list(loader(3)), epochs=2)[-1]
    for _ in range(2):
        trainer(tmp_path, callback()).fit(net, loader(3))
        assert not net.kept._updaters
        assert not net.kept._prepare
    assert close(net.fc.weight, expected)


def live() -> list[int]:
    """How many monitors, models and optimizers there are."""
    gc.collect()
    kinds = [type(thing) for thing in gc.get_objects()]
    return [
        sum(issubclass(kind, base) for kind in kinds)
        for base in (Monitor, pl.LightningModule, UpdateOptimizer)
    ]


@pytest.mark.parametrize("one_rule", [False, True])
def test_twenty_models_leave_nothing(one_rule: bool, tmp_path: Path) -> None:
    use = callback(STDP(**RULE, time_dim=0))
    before = live()
    for _ in range(20):
        trainer(tmp_path, use if one_rule else callback()).fit(Net(), loader(1))
    assert live() == [before[0] + 2 * one_rule, *before[1:]]
