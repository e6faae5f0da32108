"""Warns of changes that one of several processes applies without those of the others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch.distributed as dist

from lightning_accum.distributed.world import processes


def warn_of_alone(module: str, params: Sequence[str]) -> None:
    """Warns that changes were applied which were not summed over processes.

    Args:
        module: the name of the module.
        params: the names of its parameters that changed.
    """
    named = ", ".join(f"`{name}`" for name in params)
    warnings.warn(
        f"The changes of {named} of `{module}` should be summed over all {processes()} processes"
        f" before they are applied. Found those of process {dist.get_rank()} applied without the"
        " others, so that the weights of the processes drift apart: train with a"
        " CellTrainerCallback, or call `step()` of a FabricCellTrainer in every process in the"
        " place of `update()`. If each process trains a network of its own, ignore this.",
        RuntimeWarning,
        stacklevel=4,
    )
