"""The properties of a cell that a rule determines once, and uses in every call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum.cells.state import CellState
from lightning_accum.engine.accumulate import Terms
from lightning_accum.engine.fixed_terms import FixedTerms
from lightning_accum.engine.recording import Recorded
from lightning_accum.engine.terms import Change, check_sides
from lightning_accum.engine.vjp import WeightVJP, unit_dim_of
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import reduction
from lightning_accum.rules._next_step import StepPlanner
from lightning_accum.sparse.costs import Forms


class CellPlan:
    """Everything that is the same in all calls of a rule for one cell.

    Registering the cell drops it, because all of it follows from the hyperparameters of the cell
    and the kinds of its modules. It does not hold the modules, which belong to the model.

    Args:
        state: the state of the cell.
        signals: the names of the signals to read.
        connection: the connection.
        reads: the names of the connection's other tensors that the rule reads.
    """

    def __init__(
        self, state: CellState, signals: Sequence[str], connection: nn.Module, reads: Sequence[str]
    ) -> None:
        self.state = state
        self.h: Any = state.hyperparameters
        self.signals = tuple(signals)
        self.reads = tuple(reads)
        self.unit_dim = unit_dim_of(connection)
        self.batch = reduction(self.h.batch_reduction)
        self.forms = {param: Forms() for param in self.h.params}
        self._vjps: dict[str, type[WeightVJP]] = {}  # those whose shapes fit the activity
        self._read: dict[str, tuple[torch.Size, torch.dtype]] = {}
        self._terms: FixedTerms | None = None
        self._suited: tuple[object, ...] = ()
        self.steps = StepPlanner()
        self.checked = False  # whether the sides of a window's terms were

    def vjps_of(
        self,
        name: str,
        connection: nn.Module,
        signals: Mapping[str, Recorded],
        kind_of: Callable[[nn.Module, str], type[WeightVJP]],
    ) -> dict[str, WeightVJP]:
        """Returns the vector-Jacobian product of each parameter to train.

        Args:
            name: the name of the cell, for messages.
            connection: the connection.
            signals: recorded activity, with which each product is tried in the first call.
            kind_of: returns the kind of a parameter's product.

        Raises:
            ValueError: if the activity does not fit a parameter.
        """
        found = {}
        for param in self.h.params:
            kind, place = self._vjps.get(param), f"`{param}` of cell `{name}`"
            if kind is None:
                kind = kind_of(connection, param)
                sides = (signals[side].activity[0, :1] for side in ("post", "pre"))
                kind(connection, param, place).check(*sides)
                self._vjps[param] = kind
            found[param] = kind(connection, param, place)
        return found

    def read_before(self, found: Mapping[str, Recorded]) -> bool:
        """Returns whether signals have one step, and the shapes and dtypes that were checked last.

        Args:
            found: recorded activity by name.
        """
        known = self._read
        if len(found) != len(known):
            return False
        for name, (activity, _) in found.items():
            if known.get(name) != (activity.shape, activity.dtype):
                return False
        return True

    def note_read(self, found: Mapping[str, Recorded]) -> None:
        """Notes signals that were checked; those of several steps are checked in each window.

        Args:
            found: recorded activity by name.
        """
        kinds = {name: (each.activity.shape, each.activity.dtype) for name, each in found.items()}
        self._read = kinds if found["pre"].activity.shape[0] == 1 else {}

    def checking(self, terms: Terms, rule: str) -> Terms:
        """Wraps ``terms`` to check the sides of the terms that it returns.

        Args:
            terms: returns the terms of a window.
            rule: the name of the rule, for messages.
        """

        def checked(window: Window) -> Sequence[Change]:
            found = terms(window)
            check_sides(rule, found)
            self.checked = True
            return found

        return checked

    def noting(self, terms: Terms) -> Terms:
        """Wraps ``terms`` to note the terms that it returns for a window of one step.

        Args:
            terms: returns the terms of a window; they are the same in all windows.
        """

        def noted(window: Window) -> Sequence[Change]:
            found = terms(window)
            products = [term for change in found if change.sign and (term := change.as_product())]
            self._terms = FixedTerms(products, self.batch) if products else None
            self._suited = _kind(window.pre.activity, window.post.activity, window.param)
            return found

        suited = self.batch.adds and self.h.params == ("weight",)
        return noted if suited and self._vjps["weight"].is_matrix else terms

    def known_terms(self, pre: Tensor, post: Tensor, param: Tensor) -> FixedTerms | None:
        """Returns the noted terms; ``None`` if there are none for such activity.

        Args:
            pre: presynaptic activity.
            post: postsynaptic activity.
            param: the parameter.
        """
        return self._terms if self._suited == _kind(pre, post, param) else None


def _kind(pre: Tensor, post: Tensor, param: Tensor) -> tuple[object, ...]:
    """Returns the shapes, dtypes and device for which noted terms are valid."""
    sides = pre.shape, pre.dtype, post.shape, post.dtype
    return *sides, pre.device, param.shape, param.dtype, param.device
