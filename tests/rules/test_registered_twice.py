"""One cell that is registered twice with equal settings learns twice as fast, which is told."""

from __future__ import annotations

from typing import Any

import pytest
from torch import nn

from lightning_accum import STDP, Cell


@pytest.mark.parametrize(
    ("overrides", "told"), [({}, True), ({"lr_post": 0.2}, False), ({"params": ("bias",)}, False)]
)
def test_in_one_rule(overrides: dict[str, Any], told: bool) -> None:
    rule, fc, neuron = STDP(0.1, -0.1), nn.Linear(4, 2), nn.Identity()
    alone = nn.Identity()
    rule.register_cell("one", Cell(fc, neuron))
    rule.register_cell("other neuron", Cell(fc, alone))
    if told:
        with pytest.warns(UserWarning, match="cell `two` should be.*in cell `one` of `STDP` too"):
            rule.register_cell("two", Cell(fc, neuron))
        with pytest.warns(UserWarning, match="cell `three` should be") as said:
            rule.register_cell("three", Cell(fc, neuron))
        assert len(said) == 1  # and not once for each of the others
    else:
        rule.register_cell("two", Cell(fc, neuron), **overrides)
