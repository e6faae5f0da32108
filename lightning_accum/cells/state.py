"""What a trainer keeps for one cell."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from types import SimpleNamespace
from typing import Any, TypeAlias

from torch import Tensor

from lightning_accum._state import COUNT, FLOATS, CheckedState, check_state, named
from lightning_accum.cells.tally import Tally
from lightning_accum.engine.state import StateKey, of_neurons
from lightning_accum.functional.numbers import at_least_float32

Snapshot: TypeAlias = tuple[dict[StateKey, Tensor], dict[str, int]]
"""What is carried, and how many samples' changes are pending."""


class Hyperparameters(SimpleNamespace):
    """What a rule is set to, for one cell: ``h.lr_post``, ``h.tc_pre``, ...

    They are checked when they are given, and frozen from then on.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        raise frozen(name, "hyperparameters")

    def __delattr__(self, name: str) -> None:
        raise frozen(name, "hyperparameters")


def frozen(name: str, where: str) -> FrozenInstanceError:
    """Returns the error of an assignment to a hyperparameter.

    Args:
        name: of the hyperparameter.
        where: what it was assigned to.
    """
    return FrozenInstanceError(
        f"Hyperparameter `{name}` should be given when the rule is made, or to `register_cell` for"
        f" one cell. Found it assigned to {where} afterwards, which would reach no cell: make a new"
        " rule, or, for a rate that changes in a run, scale its updates, with `lr` and"
        " `lr_scheduler` of the CellTrainerCallback or `lr` of an UpdateOptimizer."
    )


class CellState(CheckedState):
    """What a trainer keeps for one cell: its hyperparameters, and what passes between windows.

    Args:
        hyperparameters: those in force for the cell.
    """

    def __init__(self, hyperparameters: Hyperparameters) -> None:
        super().__init__()
        self.hyperparameters = hyperparameters
        self.tally = Tally()
        # by parameter, how many samples' changes are pending: the weight among processes
        self.samples: dict[str, int] = {}
        self._carried: dict[StateKey, Tensor] = {}
        self._loaded: frozenset[StateKey] = frozenset()

    @property
    def carried(self) -> dict[StateKey, Tensor]:
        """What the last window left for the next one."""
        return self._carried

    def keep(self, carried: dict[StateKey, Tensor], cell: str) -> None:
        """Keeps what a window left; warns if what was loaded before did not fit the rule.

        Args:
            carried: what the window left.
            cell: name of the cell.
        """
        loaded, self._loaded = self._loaded, frozenset()
        for key in loaded:
            if key in carried and key.scope == "sample":
                continue
            for new in carried.keys() - loaded:
                if (new.scope, new.kind) == (key.scope, key.kind):
                    warnings.warn(
                        f"The state that was loaded for cell `{cell}` has a {key.kind} with a"
                        f" setting of {key.setting:g}. Found {new.setting:g} in the rule, so that"
                        " this starts from zero: load the state into a rule with the time constants"
                        " and `dt` with which it was saved, or ignore this if the change is meant.",
                        RuntimeWarning,
                        stacklevel=4,
                    )
        self._carried = carried

    def snapshot(self) -> Snapshot:
        """Returns what :meth:`restore` brings back; nothing is copied, for windows replace it."""
        return self._carried, dict(self.samples)

    def restore(self, kept: Snapshot) -> None:
        """Brings back what :meth:`snapshot` returned."""
        self._carried, self.samples = kept

    def clear(self) -> None:
        """Drops what samples would pass to the next window; what a neuron has learned stays."""
        self._carried = of_neurons(self._carried)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CellState:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        moved = {key: fn(tensor) for key, tensor in self._carried.items()}
        self._carried = {  # traces never narrow below the float32 in which they are computed
            key: self._carried[key].to(to.device, at_least_float32(to.dtype))
            for key, to in moved.items()
        }
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """Returns what passes to the next window, and how many samples' changes are pending."""
        carried = {str(key): value.detach().clone() for key, value in self._carried.items()}
        return {"carried": carried, "samples": dict(self.samples)}

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        kinds = {"carried": named(FLOATS), "samples": named(COUNT)}
        check_state("a cell of the trainer", state, kinds)
        for text in state["carried"]:
            StateKey.parse(text)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Takes what :meth:`get_extra_state` returned.

        Raises:
            RuntimeError: if it is anything else; then nothing has changed.
        """
        self.check_extra_state(state)
        carried = {
            StateKey.parse(text): value.detach().clone() for text, value in state["carried"].items()
        }
        self._carried, self._loaded = carried, frozenset(carried)
        self.samples = dict(state["samples"])

    def extra_repr(self) -> str:
        """The hyperparameters."""
        return ", ".join(f"{k}={v!r}" for k, v in vars(self.hyperparameters).items())
