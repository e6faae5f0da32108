"""Applies the accumulated updates of a module's parameters: all of them, or none."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._checks import check_module, check_numbers, check_taken, names_in
from lightning_accum._compat.torch import compiled_from, hook_count, own_tensor
from lightning_accum._events import SILENT, Events
from lightning_accum._state import REAL, CheckedState, Kind, check_that, named
from lightning_accum.distributed.shards import is_sharded
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates import atomic_changes as changes
from lightning_accum.updates.accumulator import Accumulator
from lightning_accum.updates.atomic_changes import Change, NonFinite, NonFiniteGuard
from lightning_accum.updates.constraints import Constraint, Constraints
from lightning_accum.updates.targets import Target, follow_synapses, parameter_of, updatable_param

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

    keywords: ClassVar[tuple[str, ...]] = ("clear", "scale")
    """The keywords that a call takes in addition to the options of bounds."""

    events: Events = SILENT
    """Is told of changes that are applied; copies have one that is silent."""

    _accumulators: dict[str, Accumulator] = {}  # noqa: RUF012 - none before `__init__`
    _parent: weakref.ref[nn.Module] | None = None
    _user: weakref.ref[Any] | None = None

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
        self.label = type(module).__name__
        self._reduction = reduction
        self._accumulators = {}
        self._guard = NonFiniteGuard(nonfinite)
        self._loaded: dict[str, Tensor] = {}  # counts of an earlier run
        self._constraints = Constraints()
        self.bind(module)
        self.add(*(params or [name for name, _ in module.named_parameters(recurse=False)]))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters, in the order in which they were added."""
        return tuple(self._accumulators)

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
            if type(name) is not str or name not in self._accumulators:
                break
        else:
            return
        module, new = self.parent, {}
        for name in names_in("params", params):
            if name in self._accumulators or name in new:
                continue
            param = updatable_param(module, name)
            if hasattr(self, name):
                raise ValueError(
                    f"Argument `params` should not name an attribute that every Updater has. Found"
                    f" `{name}`: rename the parameter of `{self.label}`."
                )
            new[name] = Accumulator(param.shape, name=name)
            new[name].reduction(self._reduction)
        for name, accumulator in new.items():
            self._put(name, accumulator)

    def _put(self, name: str, accumulator: Accumulator) -> None:
        """Sets the accumulator of a parameter."""
        self.add_module(name, accumulator)
        self._accumulators[name] = accumulator

    def sibling(self) -> Updater:
        """Returns an empty updater for the same parameters, with these constraints and bounds."""
        other = Updater(self.parent, *self.names, nonfinite=self.nonfinite)
        other.label, other._reduction = self.label, self._reduction
        other._constraints = self._constraints
        for name in self.names:
            other._put(name, self._accumulators[name].sibling())
        return other

    # ------------------------------------------------------------------ the module
    @property
    def parent(self) -> nn.Module:
        """The module whose parameters are updated.

        Raises:
            RuntimeError: if it no longer exists, or this is a copy without its module.
        """
        parent = None if self._parent is None else self._parent()
        if parent is None:
            raise RuntimeError(
                f"The module `{self.label}` of this updater no longer exists, or this is a copy"
                " that was made apart from its module: bind it with `updater.bind(module)`."
            )
        return parent

    @property
    def known_parent(self) -> nn.Module | None:
        """The module; ``None`` if it no longer exists, or this is a copy without its module."""
        return None if self._parent is None else self._parent()

    def bind(self, module: nn.Module) -> None:
        """Makes ``module`` the parent, weakly; its parameters take the accumulators by name."""
        self._parent = weakref.ref(module)
        follow_synapses(module, self)

    def rearranging(
        self, module: nn.Module, move: Callable[[Tensor], Tensor]
    ) -> list[partial[None]]:
        """Returns calls that move what is pending for the weight, as its synapses move."""
        if module is not self.known_parent or "weight" not in self._accumulators:
            return []
        self.events.rearranged(self, ("weight",))
        return self._accumulators["weight"].rearranging(move)

    @property
    def user(self) -> object | None:
        """The object that has claimed this, referenced weakly; ``None`` if it does not exist."""
        return None if self._user is None else self._user()

    @user.setter
    def user(self, user: object | None) -> None:
        self._user = None if user is None else weakref.ref(user)

    def target(self, name: str) -> Tensor:
        """Returns the parameter that the module has under a name now, if it has its shape still."""
        parent, shape = self.parent, self._accumulators[name].shape
        param = own_tensor(parent, name)
        if param is None:
            param = parameter_of(parent, name)
        if param is None:
            raise RuntimeError(
                f"`{name}` should stay a parameter of `{self.label}` while it is trained. Found"
                " that it is gone, or computed from others by now: change the module before its"
                " cell is registered, and name its new parameters in `params`."
            )
        if param.shape != shape:
            raise ValueError(
                f"The updater of `{self.label}` should fit the parameter's shape"
                f" {tuple(param.shape)}. Found one that was made when `{name}` had the shape"
                f" {tuple(shape or ())}: remove it with `set_updater(module, None)`, and register"
                " the cell again."
            )
        return param

    def clear(self, **kwargs: Any) -> None:
        """Drops everything that is pending."""
        for accumulator in self._accumulators.values():
            accumulator.clear()

    # ------------------------------------------------------------------ accumulators by name
    def checked_names(self, params: Sequence[str]) -> Sequence[str]:
        """Returns ``params``, all names if it is empty, or raises if one of them is unknown."""
        for name in params:
            if name not in self._accumulators:
                raise AttributeError(
                    f"Argument `params` should name parameters of this updater, {self.names}."
                    f" Found `{name}`: name it when the updater is made, or call `add({name!r})`."
                )
        return params or self.names

    def takes(self, keyword: str) -> bool:
        """Returns whether a call takes a keyword, or a bound of one of the parameters does."""
        accumulators = self._accumulators.values()
        return keyword in self.keywords or any(each.takes(keyword) for each in accumulators)

    @staticmethod
    def _getacc_(self: Updater, attr: str) -> Accumulator:
        """Returns the accumulator of a parameter."""
        return self._accumulators[attr]

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
        if name in self._accumulators:
            self._setacc_(self, value, name)
        elif isinstance(getattr(type(self), name, None), property):
            # nn.Module would register a module or an nn.Parameter that is assigned here.
            object.__setattr__(self, name, value)
        else:
            if not name.startswith("_") and isinstance(value, (Tensor, tuple)):
                self.checked_names((name,))  # a change of a parameter that has no accumulator
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._accumulators:
            self._delacc_(self, name)
        else:
            super().__delattr__(name)

    # ------------------------------------------------------------------ settings
    @property
    def nonfinite(self) -> NonFinite:
        """The policy for an update with NaN or Inf: ``"raise"``, ``"skip"`` or ``"ignore"``."""
        return self._guard.policy

    @nonfinite.setter
    def nonfinite(self, policy: NonFinite) -> None:
        changes.check_policy(policy)
        self._guard.policy = policy

    def configure(
        self, reduction: ReductionFn | str | None = None, nonfinite: NonFinite | None = None
    ) -> None:
        """Changes how the contributions to all parameters are reduced, and the policy.

        Args:
            reduction: as for :meth:`Accumulator.reduction`; ``None`` leaves it unchanged.
            nonfinite: the policy; ``None`` leaves it unchanged.

        Raises:
            RuntimeError: if the reduction would change while contributions are pending; then
                nothing has changed.
            ValueError: if one of them is unknown; then nothing has changed.
        """
        if nonfinite is not None:
            changes.check_policy(nonfinite)
        if reduction is not None:
            for accumulator in self._accumulators.values():
                accumulator.check_reduction(reduction)
            for accumulator in self._accumulators.values():
                accumulator.reduction(reduction)
            self._reduction = reduction
        if nonfinite is not None:
            self.nonfinite = nonfinite

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
        return self._constraints.register(fn, tuple(names), found, bounds)

    def constraints_of(self, name: str) -> list[Constraint]:
        """Returns the constraints that run after each update of a parameter."""
        return self._constraints.of(name)

    def limits(self, name: str) -> tuple[float | None, float | None]:
        """Returns the lower and the upper limit of a parameter, by a clamp or else its bounds."""
        return self._constraints.limits(name, *self._accumulators[name].limits)

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
        if kwargs:
            check_taken(type(self).__name__, kwargs, self.keywords, self.takes)
        names = self.checked_names(params) if params else tuple(self._accumulators)
        if self._constraints:  # bounds may have been set since they were registered
            bounds = {name: self._accumulators[name].limits for name in names}
            self._constraints.check_bounds(bounds)
        factors = scale if isinstance(scale, dict) else dict.fromkeys(names, scale)
        for name, factor in factors.items():
            if type(factor) is not float:
                check_numbers(**{f"scale[{name!r}]": factor})
        if isinstance(scale, dict):
            self.checked_names(list(scale))
        targets = self._targets(names, factors, kwargs)
        change = changes.checked_change(self.label, targets, self._guard)
        return partial(self._apply_change, change, names if clear else ())

    def apply_stacked(self) -> bool:
        """Applies a stacked product, if it is all that is pending; returns whether it did."""
        pending = [name for name, each in self._accumulators.items() if not each.empty]
        if len(pending) != 1 or hook_count(self):
            return False
        (target,) = self._targets(pending, {}, {})
        change = changes.stacked_change(target, target.accumulator.stacked, self._guard)
        if change is not None:
            self._apply_change(change, self.names)
        return change is not None

    def _targets(
        self, names: Sequence[str], factors: dict[str, float], options: dict[str, Any]
    ) -> list[Target]:
        """Returns the named parameters for which a change is pending."""
        found = []
        for name in names:
            accumulator = self._accumulators[name]
            if not accumulator.empty:
                param, factor = self.target(name), float(factors.get(name, 1.0))
                sharded = type(param) is not nn.Parameter and is_sharded(param)
                found.append(Target(name, param, accumulator, sharded, factor, options))
        if not found:
            assert self.parent is not None  # else it raises an error
        return found

    def _apply_change(self, change: Change, consumed: Sequence[str]) -> None:
        """Applies a checked change, and empties the accumulators that held it."""
        scale = {}
        for target in change.targets:
            scale[target.name] = target.factor
        names = tuple(scale)
        self.events.applying(self, names)
        emptying: list[partial[None]] = []
        for name in consumed:
            emptying += self._accumulators[name].emptying_calls()
        # An interrupt leaves the change applied and consumed, or neither. Constraints may raise.
        changes.call_uninterrupted(*change.calls, *emptying)
        self._guard.counts.update(change.counts)
        for name in consumed:
            self._accumulators[name].clear()
        if self._constraints:
            self._constraints.run(change.targets, self.parent)
        self.events.applied(self, names, scale)

    def gradients(self) -> tuple[dict[str, Tensor], list[partial[Any]]]:
        """Returns pending changes as gradients, of the opposite sign, and calls that drop them."""
        targets = self._targets(self.names, {}, {})
        fns = [(t.name, fn) for t in targets for fn in self._constraints.of(t.name)]
        if fns:
            found = ", ".join(f"`{getattr(fn, '__name__', fn)}` on `{name}`" for name, fn in fns)
            raise ValueError(
                "A parameter whose updates become gradients should have no constraint on its"
                " updater, which does not run it: the optimizer changes the parameter. Found"
                f" {found} of `{self.label}`: do not register it, and call it after each `step()`"
                " of the optimizer, such as `Clamp(0.0, 1.0)(fc.weight.data)`."
            )
        with torch.no_grad():
            grads, counts = changes.gradients(self.label, targets, self._guard)
        consume = [call for each in self._accumulators.values() for call in each.emptying_calls()]
        return grads, [partial(self._guard.counts.update, counts), *consume]

    def end_export(self, names: Iterable[str]) -> None:
        """Drops the memory of what has become gradients, and tells of it."""
        self.clear()
        self.events.exported(self, list(names))

    # ------------------------------------------------------------------ state
    @property
    def skipped(self) -> dict[str, int]:
        """How often each parameter's update was dropped for NaN or Inf; waits for the device."""
        return {name: int(count) for name, count in self._guard.counts.items()}

    @property
    def lately_skipped(self) -> dict[str, int]:
        """The same since a state was loaded, if one was; waits for the device."""
        return {name: n - int(self._loaded.get(name, 0)) for name, n in self.skipped.items()}

    def get_extra_state(self) -> dict[str, Tensor]:
        """Returns how often updates were dropped."""
        return {name: count.clone() for name, count in self._guard.counts.items()}

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        place, known = f"the updater of `{self.label}`", self.names
        check_that(_COUNTS.fits(state), place, _COUNTS.should, state)
        check_that(state.keys() <= set(known), place, f"names among {known}", [*state])

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Loads a copy of the state that :meth:`get_extra_state` returned, if it fits."""
        self.check_extra_state(state)
        self._loaded = {name: count.clone() for name, count in state.items()}
        self._guard.counts = {name: count.clone() for name, count in state.items()}

    def __getstate__(self) -> dict[str, Any]:
        own = {"events", "_parent", "_user"}  # of the original
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def extra_repr(self) -> str:
        """Shows the module's type and the policy."""
        return f"of {self.label}, nonfinite={self.nonfinite!r}"
