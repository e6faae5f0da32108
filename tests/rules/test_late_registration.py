"""Rules and cells that are made after the activity that they should learn from."""

from __future__ import annotations

import pytest
import torch

from lightning_accum import STDP, Cell
from lightning_accum.nn import LIF, Linear


def run(steps: int, late: bool, keep: STDP | None = None) -> None:
    fc, lif = Linear(4, 2, bias=False), LIF(2, time_dim=0)
    torch.nn.init.constant_(fc.weight, 2.0)
    for _ in range(steps):
        rule = keep or STDP(0.01, -0.005, time_dim=0)
        if not late:
            rule.register_cell("c", Cell(fc, lif))
        lif.reset()
        lif(fc(torch.rand(10, 3, 4).round()))
        if late:
            rule.register_cell("c", Cell(fc, lif))
        rule()
        rule.update()
        if keep:
            rule.del_cell("c")


@pytest.mark.parametrize("kept", [False, True])
def test_a_registration_after_each_forward_is_told_once(kept: bool) -> None:
    rule = STDP(0.01, -0.005, time_dim=0) if kept else None
    with pytest.warns(RuntimeWarning, match="Cells of `Linear` .* Found 8 registra") as found:
        run(20, True, rule)
    assert len(found) == 1


@pytest.mark.parametrize("kept", [False, True])
def test_a_registration_before_each_forward_learns(kept: bool) -> None:
    run(20, False, STDP(0.01, -0.005, time_dim=0) if kept else None)
