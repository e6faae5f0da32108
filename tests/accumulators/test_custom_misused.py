"""Accumulators used by mistake: what they would lose."""

from __future__ import annotations

import pytest

from lightning_accum.accumulators import CustomAccumulator, Except, Mean


class Total(CustomAccumulator):
    """Returns what it should keep."""

    def __init__(self) -> None:
        super().__init__()
        self.reset()

    def forward(self, data: float) -> float:
        return self.data + data

    def calculate(self) -> float:
        return self.data

    def reset(self) -> None:
        self.data = 0.0


def test_forward_that_returns_the_sum() -> None:
    with pytest.raises(TypeError, match=r"`Total.forward` should add to `self.data`"):
        Total().update(1.0)


def test_except_of_a_class() -> None:
    with pytest.raises(TypeError, match=r"such as `Mean\(\)`"):
        Except(Mean, begin=1)
