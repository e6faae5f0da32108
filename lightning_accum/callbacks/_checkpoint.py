"""The states of several processes in one checkpoint."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import lightning.pytorch as pl
import torch.distributed as dist

from lightning_accum._state import ANOTHER_VERSION, Kind, check_state
from lightning_accum.distributed.world import (
    is_first,
    load_module_states,
    module_states,
    processes,
    states_of_others,
)


class ProcessStates:
    """Adds the states of the other processes to a checkpoint, and picks this process's state."""

    def __init__(self) -> None:
        self.failed = False  # whether an exception ended the fit, so that processes may be missing
        self._modules: dict[str, Any] = {}  # states of this package's modules, to load in a fit

    def others(
        self, own: Callable[[], dict[str, Any]], pl_module: pl.LightningModule
    ) -> list[Any] | None:
        """Returns the states of the other processes, in the first; ``None`` if there is nothing.

        Every process has to call this.

        Args:
            own: returns the state of this process.
            pl_module: the module, of which this package's modules keep states too.
        """
        if processes() == 1 or self.failed:
            return None
        return states_of_others(lambda: {**own(), "modules": module_states(pl_module)})

    def pick(
        self, place: str, saved_state: Mapping[str, Any], kinds: Mapping[str, Kind]
    ) -> tuple[dict[str, Any], bool]:
        """Returns the state of this process, and whether it is its own or the first process's.

        Each process has its own if as many processes resume as have saved. Otherwise the first one
        warns of what is lost.

        Args:
            place: names the state in a message.
            saved_state: the state of the first process, with those of the others.
            kinds: the kinds of its entries.

        Raises:
            RuntimeError: if it is not such a state.
        """
        state = {key: value for key, value in saved_state.items() if key != "others"}
        check_state(place, state, kinds, ANOTHER_VERSION)
        others: list[Any] = saved_state.get("others", [])
        saved = len(others) + 1
        if others and saved != processes() and is_first():
            warnings.warn(
                f"A checkpoint of {saved} processes should be resumed by as many. Found"
                f" {processes()}, so that only the first process's state is used: what others had"
                " pending or carried is lost, and so is the state of their neurons. Resume with"
                f" {saved} processes, or ignore this for a checkpoint that was saved at the end of"
                " an epoch, without `carry`.",
                RuntimeWarning,
                stacklevel=3,
            )
        if is_first() or saved != processes():
            return state, is_first()
        picked: dict[str, Any] = others[dist.get_rank() - 1]
        self._modules = picked["modules"]
        return picked, True

    def load_modules(self, pl_module: pl.LightningModule) -> None:
        """Loads this process's states of this package's modules, when a fit begins."""
        self.failed = False
        load_module_states(pl_module, self._modules)
        self._modules = {}
