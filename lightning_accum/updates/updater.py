"""Applies the accumulated updates of a module's parameters: all of them, or none."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._checked_state import REAL, CheckedState, Kind, check_that, named
from lightning_accum._checks import check_module, check_taken, check_type, names_in
from lightning_accum._compat.torch_internals import compiled_from
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates.accumulator import Accumulator
from lightning_accum.updates.atomic_changes import AtomicChanges, NonFinite, check_policy
from lightning_accum.updates.constraints import Constraint, Limits
from lightning_accum.updates.pending import Pending, checked_reduction
from lightning_accum.updates.targets import follow_synapses, parameter_of, updatable_param

# The updater is kept in the module's __dict__, not among its submodules: it is copied and pickled
# with the module, and the module's state dict, parameters and `load_from_checkpoint` do not see it.
_SLOT = "_lightning_accum_updater"
_COUNTS = named(
    Kind("a tensor of one integer", lambda v: REAL.fits(v) and not v.ndim and v.dtype == torch.long)
)


class Updater(CheckedState):
    """Accumulated updates of a module's parameters, applied in place on the same parameters.

    ``updater.weight`` is the :class:`Accumulator` of the parameter ``weight``. Assigning a tensor
    adds to its potentiating part, assigning a pair adds to both, ``del`` clears both. Names are
    looked up in the module at each call, so that a parameter that was replaced by another of its
    shape is found.

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

    _pending: dict[str, Pending] = {}  # noqa: RUF012 - nothing before `__init__`

    def __init__(
        self,
        module: nn.Module,
        *params: str,
        reduction: ReductionFn | str | None = None,
        nonfinite: NonFinite = "raise",
        **kwargs: Any,
    ) -> None:
        check_taken(type(self).__name__, kwargs, ("reduction", "nonfinite"))
        super().__init__()
        check_module(module=module)
        module = compiled_from(module)
        self._reduction = reduction
        self.changes = AtomicChanges(self, type(module).__name__, nonfinite)
        self._pending = self.changes.pending
        self.bind(module)
        self.add(*(params or [name for name, _ in module.named_parameters(recurse=False)]))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, in the order in which they were added."""
        return tuple(self._pending)

    def add(self, *params: str) -> None:
        """Makes further parameters of the module updatable; known ones stay unchanged.

        Args:
            *params: names of the module's own parameters or buffers.

        Raises:
            AttributeError: if the module lacks one of ``params``, or computes it.
            TypeError: if one of them does not hold floating-point numbers.
            ValueError: if a name collides with an attribute of ``Updater``, or a parameter has no
                shape yet.
        """
        for name in params:
            if type(name) is not str or name not in self._pending:
                break
        else:
            return
        module, new = self.parent, {}
        for name in names_in("params", params):
            if name in self._pending or name in new:
                continue
            param = updatable_param(module, name)
            if hasattr(self, name):
                raise ValueError(
                    f"Argument `params` should not name an attribute that every Updater has. Found"
                    f" `{name}`: rename the parameter of `{self.changes.label}`."
                )
            new[name] = Accumulator(param.shape, name=name)
            new[name].reduction(self._reduction)
        for name, accumulator in new.items():
            self.add_module(name, accumulator)
            self._pending[name] = accumulator.pending

    # ------------------------------------------------------------------ the module
    @property
    def parent(self) -> nn.Module:
        """The module whose parameters are updated.

        Raises:
            RuntimeError: if it no longer exists, or this is a copy without its module.
        """
        return self.changes.parent

    def bind(self, module: nn.Module) -> None:
        """Makes ``module`` the parent, weakly; its parameters take the accumulators by name."""
        self.changes.module = weakref.ref(module)
        follow_synapses(module, self.changes)

    def clear(self, **kwargs: Any) -> None:
        """Drops everything that is pending."""
        for pending in self._pending.values():
            pending.clear()

    # ------------------------------------------------------------------ accumulators by name
    @staticmethod
    def _getacc_(self: Updater, attr: str) -> Accumulator:
        """Returns the accumulator of a parameter."""
        accumulator: Accumulator = self.get_submodule(attr)  # type: ignore[assignment]
        return accumulator

    @staticmethod
    def _setacc_(
        self: Updater, value: tuple[Tensor | None, Tensor | None] | Tensor | None, attr: str
    ) -> None:
        """Adds to the accumulator of a parameter: a tensor to ``pos``, a pair to both parts."""
        pair = value if isinstance(value, (tuple, list)) else (value, None)
        if len(pair) != 2:
            raise ValueError(
                f"A value assigned to `updater.{attr}` should be a tensor, None, or a pair"
                f" `(pos, neg)`. Found {len(pair)} values."
            )
        self._getacc_(self, attr).accumulate(*pair)

    @staticmethod
    def _delacc_(self: Updater, attr: str) -> None:
        """Clears both parts of a parameter's accumulator."""
        self._getacc_(self, attr).clear()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._pending:
            self._setacc_(self, value, name)
        elif isinstance(getattr(type(self), name, None), property):
            # nn.Module would register a module or an nn.Parameter that is assigned here.
            object.__setattr__(self, name, value)
        else:
            if not name.startswith("_") and isinstance(value, (Tensor, tuple)):
                # a change of a parameter that has no accumulator
                self.changes.checked_names((name,))
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._pending:
            self._delacc_(self, name)
        else:
            super().__delattr__(name)

    # ------------------------------------------------------------------ settings
    @property
    def nonfinite(self) -> NonFinite:
        """The policy for an update with NaN or Inf: ``"raise"``, ``"skip"`` or ``"ignore"``."""
        return self.changes.guard.policy

    @nonfinite.setter
    def nonfinite(self, policy: NonFinite) -> None:
        check_policy(policy)
        self.changes.guard.policy = policy

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
        changes = self.changes
        names, parent = changes.checked_names(params), changes.module()
        found = {} if parent is None else {name: parameter_of(parent, name) for name in names}
        bounds = {name: changes.pending[name].bounds.limits for name in names}
        return changes.constraints.register(fn, tuple(names), found, bounds)

    def limits(self, name: str) -> Limits:
        """Returns the lower and the upper limit of a parameter, by a clamp or else its bounds."""
        bounds = self._pending[name].bounds
        return self.changes.constraints.limits(name, *bounds.limits)

    # ------------------------------------------------------------------ changes
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
        return self.changes.prepare(params, clear, scale, kwargs)

    # ------------------------------------------------------------------ state
    @property
    def skipped(self) -> dict[str, int]:
        """How often each parameter's update was dropped for NaN or Inf; waits for the device."""
        return {name: int(count) for name, count in self.changes.guard.counts.items()}

    def get_extra_state(self) -> dict[str, Tensor]:
        """Returns how often updates were dropped."""
        return {name: count.clone() for name, count in self.changes.guard.counts.items()}

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        place, known = f"the updater of `{self.changes.label}`", self.names
        check_that(_COUNTS.fits(state), place, _COUNTS.should, state)
        check_that(state.keys() <= set(known), place, f"names among {known}", [*state])

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Loads a copy of the state that :meth:`get_extra_state` returned, if it fits."""
        self.check_extra_state(state)
        self.changes.guard.load(state)

    def extra_repr(self) -> str:
        """Shows the module's type and the policy."""
        return f"of {self.changes.label}, nonfinite={self.nonfinite!r}"


def get_updater(module: nn.Module) -> Updater | None:
    """Returns the updater of a module, or ``None`` if it has none.

    Example:
        >>> from torch import nn
        >>> get_updater(nn.Linear(2, 2)) is None
        True
    """
    if not isinstance(module, nn.Module):
        check_module(module=module)
    updater: Updater | None = module.__dict__.get(_SLOT)
    if updater is None:
        module = compiled_from(module)
        updater = module.__dict__.get(_SLOT)
    if updater is not None and (parent := updater.changes.module()) is not module:
        if parent is not None and parent.__dict__.get(_SLOT) is updater:
            # A shallow copy shares the parameters: what is pending stays with the original.
            own: Any = copy.deepcopy(updater)
            own.clear()
            updater = own
        set_updater(module, updater)
    return updater


def set_updater(module: nn.Module, updater: Updater | None) -> None:
    """Sets the updater of a module, in place of any that it has."""
    check_module(module=module)
    module = compiled_from(module)
    if updater is None:
        module.__dict__.pop(_SLOT, None)
        return
    check_type(isinstance(updater, Updater), "updater", updater, "an Updater or None")
    updater.bind(module)
    module.__dict__[_SLOT] = updater


def claim(updater: Updater, user: object) -> Updater:
    """Returns ``updater``, or another one for the same parameters if it has another user."""
    # The pending changes of two users stay apart, as do the times and rates at which they apply
    # them. They share constraints and bounds.
    known = updater.changes.user()
    if known is None or known is user:
        updater.changes.user = weakref.ref(user)
        return updater
    other = Updater(updater.parent, *updater.names, nonfinite=updater.nonfinite)
    other._reduction, other.changes.label = updater._reduction, updater.changes.label
    other.changes.constraints = updater.changes.constraints
    for name, pending in updater.changes.pending.items():
        accumulator: Accumulator = getattr(other, name)
        own = accumulator.pending = Pending(pending.shape, name, pending.pos.reduction)
        own.bounds, own.keep_parts = pending.bounds, pending.keep_parts
        other._pending[name] = own
    return other


def release(updater: Updater, user: object) -> None:
    """Gives up the claim of ``user`` on an updater, so that others can claim it."""
    if updater.changes.user() is user:
        updater.changes.user = lambda: None


def configure(
    updater: Updater, reduction: ReductionFn | str | None, nonfinite: NonFinite | None
) -> None:
    """Changes how all contributions are reduced, and the policy, or nothing if one is refused."""
    check_policy(updater.nonfinite if nonfinite is None else nonfinite)
    if reduction is not None:
        every = updater.changes.pending.values()
        new = [checked_reduction(pending, reduction) for pending in every]
        for pending, each in zip(every, new, strict=True):
            pending.pos.reduction = pending.neg.reduction = each
        updater._reduction = reduction
    if nonfinite is not None:
        updater.nonfinite = nonfinite
