"""Several learners in one trainer: each with a rate, a rhythm and pending changes of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from callback_helpers import (
    RULE,
    Net,
    Probe,
    callback,
    close,
    fit_by_hand,
    loader,
    parts_by_hand,
    trainer,
)

from lightning_accum import STDP, Clamp, attach_updater, get_updater


def half(name: str, **options: Any) -> Any:
    """A learner whose rule has other rates than that of the others."""
    rule = STDP(**{**RULE, "lr_post": 0.5}, time_dim=0)
    return callback(rule, name=name, **options)


@pytest.mark.parametrize("first", [True, False])
def test_one_without_a_rate_changes_nothing(first: bool, tmp_path: Path) -> None:
    net, data = Net(), loader(8)
    expected = fit_by_hand(net, list(data), every=2)[-1]
    learners = [callback(name="a", apply_every_n_batches=2), half("b", lr=0.0)]
    trainer(tmp_path, *(learners if first else learners[::-1])).fit(net, data)
    assert close(net.fc.weight, expected)


def test_each_has_its_own_rhythm_and_reduction(tmp_path: Path) -> None:
    net, data = Net(), loader(4)
    expected = Net()
    sums = STDP(**RULE, time_dim=0, batch_reduction="sum")
    pending = torch.zeros_like(expected.fc.weight)
    with torch.no_grad():
        for i, (x, _) in enumerate(data):
            pos, neg = parts_by_hand(expected, x)
            pending += 0.1 * (pos - neg)
            expected.fc.weight += 0.01 * len(x) * (pos - neg)
            if i % 2:
                expected.fc.weight += pending
                pending.zero_()
    one = callback(sums, name="sums", lr=0.01)
    two = callback(name="means", lr=0.1, apply_every_n_batches=2)
    trainer(tmp_path, one, two).fit(net, data)
    assert close(net.fc.weight, expected.fc.weight)


def test_constraints_and_bounds_of_the_connection_hold_for_all(tmp_path: Path) -> None:
    net, data = Net(), loader(2)
    attach_updater(net.fc, "weight").register_constraint(Clamp(0.1, 0.2))
    within = Probe("on_train_batch_end", lambda _, m: bool((m.fc.weight - 0.15).abs().max() < 0.06))
    trainer(tmp_path, callback(name="a"), within, half("b"), within).fit(net, data)
    assert within.found == [True] * 4


def test_the_updater_that_a_fit_attached_goes_with_it_and_that_of_the_user_stays(
    tmp_path: Path,
) -> None:
    net, use = Net(), callback()
    there = Probe("on_train_start", lambda _, module: get_updater(module.fc))
    run = trainer(tmp_path, use, half("b"), there)
    run.fit(net, loader(2))
    assert there.found[0] is not None
    assert get_updater(net.fc) is None
    assert use.host.updaters["enc"].weight.empty
    torch.save(net.fc, tmp_path / "fc.pt")
    assert b"lightning_accum" not in (tmp_path / "fc.pt").read_bytes()
    # the next fit goes on with it, and so with what was set on it
    trainer(tmp_path, use, there).fit(net, loader(2))
    assert there.found[1] is there.found[0]
    own = attach_updater(net.fc, "weight")
    trainer(tmp_path, use, half("b"), there).fit(net, loader(2))
    assert there.found[2] is own is get_updater(net.fc)
    assert own.weight.empty
