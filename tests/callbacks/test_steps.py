"""What is seen of the steps of optimizers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from lightning_accum.callbacks.update_monitor import StepWatch


def test_a_step_that_raised_is_forgotten() -> None:
    """What it has copied is not compared with the weights after a later step."""
    param = torch.nn.Parameter(torch.ones(2))
    optimizer, wanted, found = SGD([param], lr=0.5), [param], []

    def measured(_: Optimizer, params: Sequence[Tensor], changes: Sequence[Any]) -> None:
        found.append(params)

    def fails() -> float:
        raise RuntimeError("closure")

    watch = StepWatch(lambda _: wanted, measured)
    try:
        with pytest.raises(RuntimeError, match="closure"):
            optimizer.step(fails)
        wanted.clear()
        optimizer.step()
        assert found == []
        wanted.append(param)
        optimizer.step()
        assert len(found) == 1
    finally:
        watch.remove()
