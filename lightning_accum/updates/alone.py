"""Warns of changes that one of several processes makes without those of the others."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping

import torch.distributed as dist

from lightning_accum._checks import quoted
from lightning_accum.distributed.world import processes
from lightning_accum.updates.accumulator import Accumulator


class Alone:
    """Warns once of changes that were applied, and once of those that became gradients."""

    def __init__(self) -> None:
        self._told: set[bool] = set()

    def check(
        self,
        module: str,
        names: Iterable[str],
        accumulators: Mapping[str, Accumulator],
        exported: bool = False,
    ) -> None:
        """Warns if changes were not summed over the processes.

        Args:
            module: the name of the module.
            names: the names of its parameters that change.
            accumulators: what holds their changes, by name.
            exported: whether the changes become gradients, instead of being applied.
        """
        if processes() == 1 or exported in self._told:
            return
        alone = [name for name in names if not accumulators[name].of_all_processes]
        if not alone:
            return
        self._told.add(exported)
        named = quoted(alone, ", ")
        became, remedy = _EXPORTED if exported else _APPLIED
        warnings.warn(
            f"The changes of {named} of `{module}` should be summed over all {processes()}"
            f" processes before they are {became}. Found those of process {dist.get_rank()}"
            f" {became} without the others, so that the weights of the processes drift apart:"
            f" {remedy}, ignore this.",
            RuntimeWarning,
            stacklevel=5,
        )


_APPLIED = (
    "applied",
    "train with a CellTrainerCallback, or call `step()` of a FabricCellTrainer in every process in"
    " the place of `update()`. If each process trains a network of its own",
)
_EXPORTED = (
    "exported as gradients",
    "call the method `updates_as_gradients()` of a CellTrainerCallback or a FabricCellTrainer in"
    " every process in the place of the function. If each process trains a network of its own, or"
    " the gradients are averaged afterwards",
)
