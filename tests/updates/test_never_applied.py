"""Changes that are given to updaters without a rule, and change nothing."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from lightning_accum import Updater, attach_updater
from lightning_accum.optim import updates_as_gradients


def test_an_updater_of_each_step_that_is_never_called() -> None:
    fc, dw = nn.Linear(2, 1), torch.ones(1, 2)

    def fresh(steps: int) -> None:
        for _ in range(steps):
            Updater(fc).weight = dw

    with pytest.warns(RuntimeWarning, match="`weight` of `Linear` .* Found 32 updaters") as found:
        fresh(100)
    assert len(found) == 1


def test_updaters_of_each_step_that_are_called_or_read() -> None:
    fc, dw = nn.Linear(2, 1), torch.ones(1, 2)
    for step in range(100):
        updater = Updater(fc)
        updater.weight = dw
        if step % 8 == 0:
            updater()
        elif step % 8 > 4:
            updater.weight.update(fc.weight)


def test_changes_that_were_all_dropped_are_told_at_the_end() -> None:
    fc = nn.Linear(2, 1)
    updater = attach_updater(fc, "weight", nonfinite="skip")
    for value in [1.0, *[torch.inf] * 7]:  # one of them is applied
        updater.weight = torch.full((1, 2), value)
        updater()
    del updater, fc
    fc = nn.Linear(2, 1)
    updater = Updater(fc, "weight", nonfinite="skip")
    for _ in range(8):
        updater.weight = torch.full((1, 2), torch.inf)
        updater()
    for copied in (copy.deepcopy(updater), pickle.loads(pickle.dumps(updater))):
        assert copied.skipped == {"weight": 8}  # of which nothing is said
    del copied
    with pytest.warns(RuntimeWarning, match="in all 8 updates of `weight` of `Linear`") as found:
        del updater
    assert len(found) == 1


def exports(steps: int, lr: float, change: float = 1.0) -> None:
    fc = nn.Linear(2, 1)
    updater, optimizer = attach_updater(fc, "weight"), torch.optim.Adam(fc.parameters(), lr=lr)
    for _ in range(steps):
        optimizer.zero_grad()
        updater.weight = torch.full((1, 2), change)
        updates_as_gradients(updater)
        optimizer.step()


def test_exports_to_an_optimizer_that_moves_nothing() -> None:
    with pytest.warns(RuntimeWarning, match="move `weight` of `Linear` .* 64 exports") as found:
        exports(200, 0.0)
    assert len(found) == 1
    exports(200, 1e-3)
    exports(200, 0.0, change=0.0)


def test_exports_after_the_changes_were_applied() -> None:
    fc = nn.Linear(2, 1)
    updater = attach_updater(fc, "weight")

    def late(steps: int) -> None:
        for _ in range(steps):
            updater.weight = torch.ones(1, 2)
            updater()
            updates_as_gradients(updater)

    with pytest.warns(RuntimeWarning, match=r"Changes of `Linear` .* and 4 changes") as found:
        late(20)
    assert len(found) == 1
    assert fc.weight.grad is None
