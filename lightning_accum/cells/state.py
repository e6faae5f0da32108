"""The state of a trainer for one cell: hyperparameters, and tensors that pass between windows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import FrozenInstanceError
from types import SimpleNamespace
from typing import Any, TypeAlias

from torch import Tensor, nn

from lightning_accum import _state as kinds
from lightning_accum._checks import nearest
from lightning_accum.engine.state import StateKey, of_neurons
from lightning_accum.functional.dtypes import at_least_float32

Snapshot: TypeAlias = tuple[dict[StateKey, Tensor], dict[str, int]]
"""The carried tensors, and the number of samples whose changes are pending."""


class Hyperparameters(SimpleNamespace):
    """Frozen hyperparameters of a rule for one cell, as attributes: ``h.lr_post``, ..."""

    # A rule's methods take them for the rule itself, `h: Self`, so that a type checker knows them.

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = vars(self)
        near = nearest(name, known)
        hint = near if near != "." else ": list it in the class, as `lr: float = 0.1`."
        raise AttributeError(
            f"Hyperparameters should be read by a name that the rule gave them, among"
            f" {sorted(known)}. Found `{name}`{hint}"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        raise frozen(name, "hyperparameters")

    def __delattr__(self, name: str) -> None:
        raise frozen(name, "hyperparameters")


def frozen(name: str, where: str) -> FrozenInstanceError:
    """Returns the error of an assignment to a hyperparameter."""
    return FrozenInstanceError(
        f"Hyperparameter `{name}` should be given when the rule is made, or to `register_cell` for"
        f" one cell. Found it assigned to {where} afterwards, which would reach no cell: make a new"
        " rule, or, for a rate that changes in a run, scale its updates, with `lr` and"
        " `lr_scheduler` of the CellTrainerCallback or `lr` of an UpdateOptimizer."
    )


def rates_in(h: Mapping[str, object]) -> dict[str, object]:
    """Returns the hyperparameters that are learning rates: ``lr``, and each ``lr_...``."""
    return {name: value for name, value in h.items() if name == "lr" or name.startswith("lr_")}


def same_settings(one: CellState, other: CellState) -> bool:
    """Returns whether the hyperparameters of two cells are equal, and modules of one class."""
    first, second = vars(one.hyperparameters), vars(other.hyperparameters)
    return first.keys() == second.keys() and all(_equal(first[k], second[k]) for k in first)


def _equal(one: object, other: object) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    plain = isinstance(one, (int, float, str, tuple)) and one == other
    return plain or isinstance(one, nn.Module)  # of which two copies of one rule have their own


_CARRIED = {  # by the end of a quantity's name; the first that fits counts
    " age": kinds.within(kinds.FLOATS, 0.0),  # infinite where there was no spike
    ", weight": kinds.within(kinds.FINITE, 0.0),
    "": kinds.FINITE,
}


class CellState(kinds.CheckedState):
    """The hyperparameters of a cell, and the tensors that pass between its windows."""

    def __init__(self, hyperparameters: Any) -> None:
        super().__init__()
        self.hyperparameters = hyperparameters
        # by parameter, the samples whose changes are pending: a process's weight in the mean of all
        self.samples: dict[str, int] = {}
        self.snapshots = 0  # how many were taken, whose tensors nothing may change
        self.carried: dict[StateKey, Tensor] = {}  # what the last window left for the next one
        self.loaded: frozenset[StateKey] = frozenset()  # keys that no window has met

    def check_loaded(self, carried: dict[StateKey, Tensor], cell: str) -> None:
        """Warns if tensors that were loaded do not fit those that a window of a cell left."""
        loaded, self.loaded = self.loaded, frozenset()
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

    def snapshot(self) -> Snapshot:
        """Returns the state for :meth:`restore`, without copies: windows replace its tensors."""
        self.snapshots += 1
        return self.carried, dict(self.samples)

    def restore(self, kept: Snapshot) -> None:
        """Restores the state that :meth:`snapshot` returned."""
        self.carried, self.samples = kept

    def clear(self) -> None:
        """Drops tensors that belong to samples; those that belong to neurons stay."""
        self.carried = of_neurons(self.carried)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> CellState:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        moved = {key: fn(tensor) for key, tensor in self.carried.items()}
        self.carried = {  # traces are computed, and stay, in float32 or wider
            key: self.carried[key].to(to.device, at_least_float32(to.dtype))
            for key, to in moved.items()
        }
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the carried tensors, and the number of samples whose changes are pending."""
        carried = {str(key): value.detach().clone() for key, value in self.carried.items()}
        return {"carried": carried, "samples": dict(self.samples)}

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        place = "a cell of the trainer"
        kinds.check_state(
            place,
            state,
            {"carried": kinds.named(kinds.FLOATS), "samples": kinds.named(kinds.COUNT)},
        )
        for text, value in state["carried"].items():
            quantity = StateKey.parse(text).kind
            kind = next(kind for end, kind in _CARRIED.items() if quantity.endswith(end))
            kinds.check_that(kind.fits(value), place, f"{kind.should} as `{text}`", value)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Loads the state that :meth:`get_extra_state` returned."""
        self.check_extra_state(state)
        carried = {
            StateKey.parse(text): value.detach().clone() for text, value in state["carried"].items()
        }
        self.carried, self.loaded = carried, frozenset(carried)
        self.samples = dict(state["samples"])

    def extra_repr(self) -> str:
        """Returns the hyperparameters, for the representation."""
        return ", ".join(f"{k}={v!r}" for k, v in vars(self.hyperparameters).items())
