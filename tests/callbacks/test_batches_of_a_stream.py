"""Traces pass from step to step and from batch to batch, or the summary says that they do not."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from callback_helpers import RULE, Net, close, fit_by_hand, loader, trainer

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback
from lightning_accum.nn import LIF


class Called(Net):
    """Calls its rule in each step; the callback applies the changes."""

    def __init__(self, rule: STDP) -> None:
        super().__init__()
        self.rule = [rule]  # which is not a module of the model
        self.lif = LIF(4, tc_mem=10.0)

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.lif.reset()
        for x in batch[0].transpose(0, 1):
            self.lif(self.fc(x))
            self.rule[0]()


@pytest.mark.parametrize("carry", [True, False])
def test_a_rule_that_is_called_in_each_step(
    carry: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rule, data = STDP(**RULE, carry=carry), loader(3)
    net, expected = Called(rule), fit_by_hand(Net(), list(data))[-1]
    with caplog.at_level(logging.INFO, "lightning_accum.callbacks"):
        use = CellTrainerCallback(rule, {"enc": CellSpec("fc", "lif")})
        trainer(tmp_path, use).fit(net, data)
    assert close(net.fc.weight, expected) == carry
    assert ("Every window of `enc` was a single step" in caplog.text) == (not carry)
