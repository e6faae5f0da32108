"""The state of a trainer for one cell: rule, options, and tensors that pass between windows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from torch import Tensor, nn
from typing_extensions import TypedDict

from lightning_accum import _checked_state as kinds
from lightning_accum import _checks as checks
from lightning_accum.engine.rule import Rule, check_numeric
from lightning_accum.engine.state_keys import StateKey, of_neurons
from lightning_accum.engine.window_changes import Backend
from lightning_accum.functional.dtypes import at_least_float32
from lightning_accum.functional.reductions import Reduction, ReductionFn, check_reduction, reduction
from lightning_accum.observe.monitor import Picker

Snapshot: TypeAlias = tuple[dict[StateKey, Tensor], dict[str, int]]
"""The carried tensors, and the number of samples whose changes are pending."""


class RunOptions(TypedDict, total=False):
    """Options of running a rule, but ``carry``, which a host has of its own."""

    dt: float
    time_dim: int | None
    batch_reduction: ReductionFn | str | None
    params: Sequence[str]
    backend: Backend
    picker: Picker | None
    graded_input: bool


@dataclass(frozen=True)
class Options:
    """The options of running a rule for one cell."""

    dt: float = 1.0
    time_dim: int | None = None
    batch_reduction: ReductionFn | str = "mean"
    params: tuple[str, ...] = ("weight",)
    carry: bool = True
    backend: Backend = "auto"
    picker: Picker | None = None
    graded_input: bool = False

    def __post_init__(self) -> None:
        checks.check_positive("a positive step in ms", dt=self.dt)
        check_reduction(self.batch_reduction, "batch_reduction")
        object.__setattr__(self, "params", checks.names_in("params", self.params))
        should = "names of at least one parameter of the connection, such as `('weight',)`"
        checks.check_value(bool(self.params), "params", self.params, should)
        checks.check_choice("backend", self.backend, get_args(Backend))
        fits = self.picker is None or callable(self.picker)
        should = "a callable that finds a tensor in a neuron's output, or None"
        checks.check_type(fits, "picker", self.picker, should)
        checks.check_time_dim(self.time_dim)


def same_settings(one: CellState, other: CellState) -> bool:
    """Returns whether the rules and options of two cells are equal, and modules of one class."""
    first, second = one.settings, other.settings
    return type(one.rule) is type(other.rule) and all(_equal(first[k], second[k]) for k in first)


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
    """The rule and the options of a cell, and the tensors that pass between its windows."""

    def __init__(self, rule: Rule, options: Options) -> None:
        super().__init__()
        check_numeric(rule)
        self.rule, self.options = rule, options
        # by parameter, the samples whose changes are pending: a process's weight in the mean of all
        self.samples: dict[str, int] = {}
        self.snapshots = 0  # how many were taken, whose tensors nothing may change
        self.carried: dict[StateKey, Tensor] = {}  # what the last window left for the next one
        self.loaded: frozenset[StateKey] = frozenset()  # keys that no window has met

    @property
    def settings(self) -> dict[str, Any]:
        """The hyperparameters and the options in force, by name."""
        return {**vars(self.rule), **vars(self.options)}

    @property
    def reduction(self) -> Reduction:
        """How the batch is reduced."""
        return reduction(self.options.batch_reduction)

    def check_loaded(self, carried: dict[StateKey, Tensor], cell: str) -> None:
        """Warns if tensors that were loaded do not fit those that a window of a cell left."""
        loaded, self.loaded = self.loaded, frozenset()
        apart = [key for key in loaded if key not in carried or key.scope != "sample"]
        pairs = [(key, new) for key in apart for new in carried.keys() - loaded]
        for key, new in pairs:
            if (new.scope, new.kind) == (key.scope, key.kind):
                warnings.warn(
                    f"The state that was loaded for cell `{cell}` has a {key.kind} with a setting"
                    f" of {key.setting:g}. Found {new.setting:g} in the rule, so that this starts"
                    " from zero: load the state into a rule with the time constants and `dt` with"
                    " which it was saved, or ignore this if the change is meant.",
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
        """Returns the rule, for the representation."""
        return repr(self.rule)
