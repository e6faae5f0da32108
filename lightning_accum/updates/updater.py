"""Applies the accumulated updates of a module's parameters: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._checks import check_taken
from lightning_accum._compat import hook_count
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates.alone import Alone
from lightning_accum.updates.changes import (
    Change,
    Pending,
    checked_change,
    checked_factors,
    gradients,
    stacked_change,
)
from lightning_accum.updates.exports import Exports
from lightning_accum.updates.guarded import GuardedAccumulators
from lightning_accum.updates.kept import Kept
from lightning_accum.updates.nonfinite import NonFinite
from lightning_accum.updates.registered_constraints import Constraint, RegisteredConstraints
from lightning_accum.updates.targets import parameter_of
from lightning_accum.updates.uninterrupted import call_uninterrupted


class Updater(GuardedAccumulators):
    """Accumulated updates of a module's parameters, applied in place on the same parameters.

    ``updater.weight`` is the :class:`Accumulator` of the parameter ``weight``. Assigning a tensor
    adds to its potentiating part, assigning a pair adds to both, ``del`` clears both.

    Args:
        module: the module whose parameters are updated; it is referenced weakly.
        *params: names of the module's own parameters or buffers; all its own parameters if none
            is named.
        reduction: how contributions are reduced, as for :meth:`Accumulator.reduction`.
        nonfinite: the policy for an update that holds NaN or Inf: ``"raise"``
            :class:`NonFiniteUpdateError` and change nothing, ``"skip"`` that parameter's update
            and count it (without waiting for the device), or ``"ignore"`` it.

    Raises:
        AttributeError: if the module lacks one of ``params``.
        TypeError: if a keyword is unknown.
        ValueError: if a name collides with an attribute of ``Updater``.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> fc = nn.Linear(2, 1, bias=False)
        >>> _ = nn.init.zeros_(fc.weight)
        >>> updater = Updater(fc, "weight")
        >>> updater.weight = torch.ones(1, 2), torch.tensor([[0.0, 0.5]])
        >>> updater()
        >>> fc.weight.tolist(), updater.weight.pos
        ([[1.0, 0.5]], None)
    """

    keywords = ("clear", "scale")

    def __init__(
        self,
        module: nn.Module,
        *params: str,
        reduction: ReductionFn | str | None = None,
        nonfinite: NonFinite = "raise",
        **kwargs: Any,
    ) -> None:
        check_taken(type(self).__name__, kwargs, ("reduction", "nonfinite"))
        super().__init__(module, reduction, nonfinite)
        self._constraints = RegisteredConstraints()
        self._alone, self.exports, self._kept = Alone(), Exports(), Kept()
        own = self.parent.named_parameters(recurse=False)
        self.add(*(params or [name for name, _ in own]))
        self._complete = type(self) is Updater  # a subclass may have attributes of its own

    def sibling(self) -> Updater:
        """Returns an empty updater for the same parameters, with these constraints and bounds."""
        other = Updater(self.parent, *self.names, nonfinite=self.nonfinite)
        other.label, other._reduction = self.label, self._reduction
        other._constraints, other.attached = self._constraints, True
        for name in self.names:
            other._put(name, self._accumulators[name].sibling())
        return other

    def register_constraint(self, fn: Constraint, *params: str) -> RemovableHandle:
        """Runs ``fn(param)`` after each applied update, to change ``param`` in place.

        Args:
            fn: for example :class:`lightning_accum.Clamp` or :class:`lightning_accum.Normalize`.
                It is tried on copies of the parameters at once.
            *params: the parameters that it is for. Default: all that the updater has by now, not
                those that are added to it later, unless it has none yet.

        Returns:
            A handle whose ``remove()`` removes the constraint.

        Raises:
            TypeError: if ``fn`` is not callable, or returns a new tensor instead of changing its
                own.
            ValueError: if limits leave no room, its own or with those of another constraint or of
                a bound.
            AttributeError: if a name is unknown to this updater.
        """
        names, parent = self.checked_names(params), self.known_parent
        found = {} if parent is None else {name: parameter_of(parent, name) for name in names}
        bounds = {name: self._accumulators[name].limits for name in names}
        handle = self._constraints.register(fn, tuple(names), found, bounds)
        self.note_limit(f"`{fn}`")
        return handle

    def constraints_of(self, name: str) -> list[Constraint]:
        """Returns the constraints that run after each update of a parameter."""
        return list(self._constraints.of(name))

    def limits(self, name: str) -> tuple[float | None, float | None]:
        """Returns the lower and the upper limit of a parameter, by a clamp or else its bounds."""
        return self._constraints.limits(name, *self._accumulators[name].limits)

    def forward(
        self,
        *params: str,
        clear: bool = True,
        scale: float | dict[str, float] = 1.0,
        prepared: Callable[[], None] | None = None,
        **kwargs: Any,
    ) -> None:
        """Applies what is pending, in place, and consumes it.

        Args:
            *params: parameters to update; all of them if none is named.
            clear: whether what was applied is dropped.
            scale: a factor of the bounded change, for all parameters, or by name, with a factor of
                one for parameters that are not named.
            prepared: what :meth:`prepare` returned, instead of the other arguments.
            **kwargs: options of the bounds, which replace for this call those that were set.

        Raises:
            AttributeError: if a name is unknown to this updater.
            RuntimeError: if the parent no longer exists.
            TypeError: if a keyword is unknown, and no bound takes it.
            ValueError: if a bound and a constraint leave the parameter no room.
            NonFiniteUpdateError: if a change holds NaN or Inf and the policy is ``"raise"``; then
                no parameter has changed.
        """
        if prepared is None:
            prepared = self.prepare(*params, clear=clear, scale=scale, **kwargs)
        prepared()

    def prepare(
        self, *params: str, clear: bool = True, scale: float | dict[str, float] = 1.0, **kwargs: Any
    ) -> Callable[[], None]:
        """Checks what is pending and returns a function that applies it; changes nothing itself.

        With it, several updaters can be checked before any of them is applied. Arguments and
        errors are those of :meth:`forward`.

        Returns:
            A function without arguments that applies what is pending as :meth:`forward` does. Call
            it before anything else is accumulated.
        """
        check_taken(type(self).__name__, kwargs, self.keywords, self.takes)
        _ = self.parent  # raises if it no longer exists, also if nothing is pending
        names = self.checked_names(params)
        if self._constraints:  # bounds may have been set since they were registered
            bounds = {name: self._accumulators[name].limits for name in names}
            self._constraints.check_bounds(bounds)
        factors = checked_factors(names, scale)
        if isinstance(scale, dict):
            self.checked_names(list(factors))
        change = checked_change(self.label, self._pending(names, factors, kwargs), self._guard)
        zeroed = (name for name in change.names if not factors.get(name, 1.0))
        return partial(self._apply_change, change, names if clear else (), *zeroed)

    def apply_stacked(self) -> bool:
        """Calls the updater without arguments, if one stacked product is all that is pending.

        Returns:
            Whether it is done; otherwise nothing has changed.
        """
        pending = [name for name, each in self._accumulators.items() if not each.empty]
        if len(pending) != 1 or hook_count(self):
            return False
        (name,) = pending
        only = Pending(name, self._accumulators[name], self.target(name), 1.0)
        change = stacked_change(only, self._guard)
        if change is not None:
            self._apply_change(change, self.names)
        return change is not None

    def _pending(
        self, names: Sequence[str], factors: dict[str, float], options: dict[str, Any]
    ) -> list[Pending]:
        """Returns the named parameters for which a change is pending."""
        found = ((name, self._accumulators[name]) for name in names)
        return [
            Pending(name, each, self.target(name), float(factors.get(name, 1.0)), options)
            for name, each in found
            if not each.empty
        ]

    def _apply_change(self, change: Change, consumed: Sequence[str], *zeroed: str) -> None:
        """Applies a checked change, and empties the accumulators that held it."""
        accumulators = [self._accumulators[name] for name in consumed]
        emptying = [call for each in accumulators for call in each.emptying_calls()]
        # An interrupt leaves the change applied and consumed, or neither. Constraints may raise.
        call_uninterrupted(*change.calls, *emptying)
        self._guard.counts.update(change.counts)
        self.note_applied(change.names)
        self._ledger.note_zeroed(zeroed)
        for accumulator in accumulators:
            accumulator.clear()
        for name in consumed:  # also what was empty: its rule may have made only changes of 0
            self.held.setdefault(name, self.target(name))
        self._kept.note(self.label, () if consumed else change.names, self._accumulators)
        self._constraints.run(change.names, self.target)

    def note_applied(self, names: Sequence[str], times: int = 1) -> None:
        """Counts that changes of parameters were applied."""
        self._alone.check(self.label, names, self._accumulators)
        for name in names:
            self.held[name] = self.target(name)
        self._ledger.note_applied(names, times)

    def gradients(self) -> tuple[dict[str, Tensor], list[partial[Any]]]:
        """Returns what is pending as gradients of a descent, and calls that consume it.

        Raises:
            NonFiniteUpdateError: if a change holds NaN or Inf and the policy is ``"raise"``.
        """
        with torch.no_grad():
            pending = self._pending(self.names, {}, {})
            found, counts = gradients(self.label, pending, self._guard)
        self._alone.check(self.label, found, self._accumulators, exported=True)
        params = {name: self.target(name) for name in found}
        self.exports.check(self.label, params, self._constraints, found, self._ledger.applied)
        accumulators = [self._accumulators[name] for name in self.names]
        consume = [call for each in accumulators for call in each.emptying_calls()]
        return found, [partial(self._guard.counts.update, counts), *consume]

    def extra_repr(self) -> str:
        """Shows the module's type and the policy."""
        return f"of {self.label}, nonfinite={self.nonfinite!r}"
