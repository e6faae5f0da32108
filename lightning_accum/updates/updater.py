"""The accumulators of one module's parameters, and how they are applied."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version
from torch.utils.hooks import RemovableHandle

from lightning_accum._checks import check_module, check_not_misspelt, check_numbers, names_in
from lightning_accum._state import REAL, CheckedState, Kind, check_that, named
from lightning_accum.distributed.shards import anywhere, is_sharded, local, shard_like, sharded_like
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates.accumulator import Accumulator
from lightning_accum.updates.constraints import Clamp
from lightning_accum.updates.part import at_once, shape_of
from lightning_accum.updates.targets import parameter_of, uncompiled, updatable_param

NonFinite = Literal["raise", "skip", "ignore"]
Constraint = Callable[[Tensor], Any]


class NonFiniteUpdateError(ArithmeticError):
    """An update that is about to be applied holds NaN or Inf."""


class Change(NamedTuple):
    """A change that was checked.

    Args:
        names: the parameters that it is of.
        calls: functions of torch that make it.
        skipped: by name, how often changes will have been dropped.
    """

    names: list[str]
    calls: list[partial[Any]]
    skipped: dict[str, Tensor]


class Updater(CheckedState):
    """Accumulated updates of a module's parameters, applied in place on the same parameters.

    ``updater.weight`` is the :class:`Accumulator` of the parameter ``weight``. Assigning a tensor
    adds to its potentiating part, assigning a pair adds to both, ``del`` clears both.

    Args:
        module: the module whose parameters are updated; it is referenced weakly.
        *params: names of the module's own parameters (or buffers); all its own parameters when
            none is named.
        reduction: how contributions are reduced, as for :meth:`Accumulator.reduction`.
        nonfinite: what to do with an update that holds NaN or Inf: ``"raise"``
            :class:`NonFiniteUpdateError` and change nothing, ``"skip"`` that parameter's update
            and count it (without waiting for the device), or ``"ignore"`` the matter.
        **kwargs: ignored, for the interface's sake.

    Raises:
        AttributeError: if the module lacks one of ``params``.
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

    _parent: weakref.ref[nn.Module] | None
    _user: weakref.ref[Any] | None

    def __init__(
        self,
        module: nn.Module,
        *params: str,
        reduction: ReductionFn | str | None = None,
        nonfinite: NonFinite = "raise",
        **kwargs: Any,
    ) -> None:
        super().__init__()
        check_not_misspelt(type(self), kwargs, ("reduction", "nonfinite"))
        check_module(module=module)
        module = uncompiled(module)
        self.names: tuple[str, ...] = ()
        self.label = type(module).__name__
        self._how = reduction
        self._constraints: OrderedDict[int, tuple[Constraint, tuple[str, ...]]] = OrderedDict()
        self._skipped: dict[str, Tensor] = {}
        self._applied: dict[str, int] = {}
        self.nonfinite = nonfinite
        self._user = None
        self.bind(module)
        self.add(*(params or [name for name, _ in module.named_parameters(recurse=False)]))

    def add(self, *params: str) -> None:
        """Makes further parameters of the module updatable; those that are already stay as is.

        Raises:
            AttributeError: if the module lacks one of ``params``, or computes it.
            TypeError: if one of them does not hold floating-point numbers.
            ValueError: if a name collides with an attribute of ``Updater``, or a parameter has no
                shape yet.
        """
        module, new = self.parent, {}
        for name in names_in("params", params):
            if name in self.names or name in new:
                continue
            new[name] = updatable_param(module, name)
            if hasattr(self, name):
                raise ValueError(
                    f"Argument `params` should not name what an Updater itself is called by. Found"
                    f" `{name}`: rename the parameter of `{self.label}`."
                )
        for name, param in new.items():
            accumulator = Accumulator(param.shape, name=name)
            accumulator.reduction(self._how)
            self.add_module(name, accumulator)
            self.names = (*self.names, name)

    # ------------------------------------------------------------------ parent
    @property
    def parent(self) -> nn.Module:
        """The module whose parameters are updated.

        Raises:
            RuntimeError: if it no longer exists, or this is a copy apart from its module.
        """
        parent = self.known_parent
        if parent is None:
            raise RuntimeError(
                f"The module `{self.label}` of this updater no longer exists, or this is a copy"
                " that was made apart from its module: bind it with `updater.bind(module)`."
            )
        return parent

    @property
    def known_parent(self) -> nn.Module | None:
        """The parent; ``None`` if it no longer exists, or this is a copy apart from its module."""
        return None if self._parent is None else self._parent()

    def bind(self, module: nn.Module) -> None:
        """Makes ``module`` the parent, weakly; its parameters take the accumulators by name."""
        object.__setattr__(self, "_parent", weakref.ref(module))

    def target(self, name: str) -> Tensor:
        """The parameter as it is now; it may be another than when this updater was made.

        Args:
            name: one of :attr:`names`.

        Raises:
            RuntimeError: if there is none of that name any more.
            ValueError: if it has another shape now.
        """
        param, shape = parameter_of(self.parent, name), self._getacc_(self, name).shape
        if param is None:
            raise RuntimeError(
                f"`{name}` should stay a parameter of `{self.label}` while it is trained. Found"
                " that it is gone, or computed from others by now: change the module before its"
                " cell is registered, and name what then is a parameter in `params`."
            )
        if param.shape != shape:
            raise ValueError(
                f"The updater of `{self.label}` should fit the parameter's shape"
                f" {tuple(param.shape)}. Found one that was made when `{name}` had the shape"
                f" {tuple(shape or ())}: replace it with `set_updater`, and register the cell anew."
            )
        return param

    def claim(self, user: object) -> Updater:
        """This updater, or another for the same parameters where somebody else uses this one.

        What two users have pending stays apart, as do the times and rates at which they apply it.
        Constraints and bounds are the same ones.

        Args:
            user: who accumulates; held weakly, until :meth:`release`.

        Example:
            >>> class Learner: ...
            >>> one, two, fc = Learner(), Learner(), nn.Linear(2, 1)
            >>> updater = Updater(fc)
            >>> updater.claim(one) is updater, updater.claim(two) is updater
            (True, False)
        """
        known = None if self._user is None else self._user()
        if known is not None and known is not user:
            return self._sibling()
        self._user = weakref.ref(user)
        return self

    def release(self, user: object) -> None:
        """Leaves this updater to others, if ``user`` has claimed it."""
        if self._user is not None and self._user() is user:
            self._user = None

    def _sibling(self) -> Updater:
        other = Updater(self.parent, *self.names, nonfinite=self.nonfinite)
        other.label, other._how, other._constraints = self.label, self._how, self._constraints
        for name in self.names:
            other.add_module(name, self._getacc_(self, name).sibling())
        return other

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_parent": None, "_user": None}

    @property
    def nonfinite(self) -> NonFinite:
        """What happens to an update with NaN or Inf: ``"raise"``, ``"skip"`` or ``"ignore"``."""
        return self._nonfinite

    @nonfinite.setter
    def nonfinite(self, policy: NonFinite) -> None:
        if policy not in get_args(NonFinite):
            raise ValueError(
                f"Argument `nonfinite` should be one of {get_args(NonFinite)}."
                f" Found `nonfinite = {policy!r}`."
            )
        self._nonfinite: NonFinite = policy

    @property
    def skipped(self) -> dict[str, int]:
        """How often each parameter's update was dropped for NaN or Inf; waits for the device."""
        return {name: int(count) for name, count in self._skipped.items()}

    @property
    def applied(self) -> dict[str, int]:
        """How often a change of each parameter was applied, those that were dropped included."""
        return dict(self._applied)

    def constrained(self, name: str) -> bool:
        """Whether a constraint runs after each update of a parameter."""
        return any(not only or name in only for _, only in self._constraints.values())

    # ------------------------------------------------------------------ applying
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
            *params: parameters to update; all of them when none is named.
            clear: whether what was applied is dropped from the accumulators.
            scale: factor of the bounded change, for all parameters, or by name, where one that is
                not named has the factor one.
            prepared: what :meth:`prepare` returned, which is applied as it is.
            **kwargs: ignored, for the interface's sake.

        Raises:
            AttributeError: if a name is none of this updater's.
            RuntimeError: if the parent no longer exists.
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

        With it, several updaters can be checked before any of them is applied.

        Args:
            *params: as for :meth:`forward`.
            clear: as for :meth:`forward`.
            scale: as for :meth:`forward`.
            **kwargs: ignored, for the interface's sake.

        Returns:
            A function without arguments, to be called before anything else is accumulated: it
            applies what is pending as :meth:`forward` does.

        Raises:
            AttributeError: if a name is none of this updater's.
            RuntimeError: if the parent no longer exists.
            NonFiniteUpdateError: if a change holds NaN or Inf and the policy is ``"raise"``.
        """
        check_not_misspelt(type(self), kwargs, ("clear", "scale"))
        _ = self.parent  # which has to exist, also if nothing is pending
        names = self._checked(params)
        scales = dict.fromkeys(names, scale) if not isinstance(scale, dict) else scale
        self._checked(list(scales))
        if not all(type(factor) is float for factor in scales.values()):
            check_numbers(**{f"scale[{name!r}]": factor for name, factor in scales.items()})
        with torch.no_grad():
            change = self._product(names, scales) or self._sum(names, scales)
        return partial(self._apply_change, change, names if clear else ())

    def _apply_change(self, change: Change, consumed: Sequence[str]) -> None:
        accumulators = [self._getacc_(self, name) for name in consumed]
        with torch.no_grad():
            # an interrupt leaves it applied and consumed, or neither; and before the constraints,
            # which may raise
            at_once(*change.calls, *(call for each in accumulators for call in each.emptying()))
            self._skipped = {**self._skipped, **change.skipped}
            for name in change.names:
                self._applied[name] = self._applied.get(name, 0) + 1
            for accumulator in accumulators:
                accumulator.clear()
            for constraint, only in self._constraints.values():
                for name in change.names:
                    if not only or name in only:
                        _constrain(constraint, self.target(name), name)

    def clear(self, **kwargs: Any) -> None:
        """Drops everything that is pending."""
        for name in self.names:
            self._delacc_(self, name)

    def register_constraint(self, fn: Constraint, *params: str) -> RemovableHandle:
        """Has ``fn(param)`` run after each applied update, to change ``param`` in place.

        Args:
            fn: for example :class:`lightning_accum.Clamp` or :class:`lightning_accum.Normalize`.
            *params: the parameters it is for; all of them when none is named. It is tried on a
                copy of them at once.

        Returns:
            A handle whose ``remove()`` takes the constraint away.

        Raises:
            TypeError: if ``fn`` is not callable, or gives a new tensor in place of changing its
                own.
            AttributeError: if a name is none of this updater's.
        """
        if not callable(fn):
            raise TypeError(
                "Argument `fn` should be a callable that changes a parameter in place."
                f" Found `{type(fn).__name__}`."
            )
        only = tuple(self._checked(params)) if params else ()
        self._try(fn, only or self.names)
        handle = RemovableHandle(self._constraints)
        while handle.id in self._constraints:  # an id of the process in which this was pickled
            handle = RemovableHandle(self._constraints)
        self._constraints[handle.id] = (fn, only)
        return handle

    @torch.no_grad()
    def _try(self, fn: Constraint, names: Sequence[str]) -> None:
        """Has a constraint refused before anything was applied, if it is not in place."""
        if self.known_parent is None:
            return
        for name in names:
            param = parameter_of(self.parent, name)
            if param is None or is_sharded(param):
                continue
            copy = param.detach().clone()
            try:
                result = fn(copy)
            except Exception:  # of what weights are not yet: it says so when it runs on them
                continue
            _check_in_place(result, copy, name)

    def limits(self, name: str) -> tuple[float | None, float | None]:
        """The lower and the upper limit of a parameter, by a clamp or else by its bounds."""
        lower, upper = self._getacc_(self, name).limits
        for constraint, only in self._constraints.values():
            if isinstance(constraint, Clamp) and (not only or name in only):
                lower = lower if constraint.min is None else constraint.min
                upper = upper if constraint.max is None else constraint.max
        return lower, upper

    def _checked(self, params: Sequence[str]) -> Sequence[str]:
        for name in params:
            if name not in self.names:
                raise AttributeError(
                    f"Argument `params` should name parameters of this updater, {self.names}."
                    f" Found `{name}`: name it when the updater is made, or call `add({name!r})`."
                )
        return params or self.names

    def _product(self, names: Sequence[str], scales: dict[str, float]) -> Change | None:
        """A change that is a product, of one parameter alone, by that product.

        Returns:
            ``None`` where the change is something else, or may overflow.
        """
        pending = [name for name in names if not self._getacc_(self, name).empty]
        products = self._getacc_(self, pending[0]).deferred if len(pending) == 1 else []
        if not products:
            return None
        name, param = pending[0], self.target(pending[0]).detach()
        fits = param.shape == shape_of(products) and param.dtype == torch.float32
        near = param.is_cpu and all(left.is_cpu for left, _, _ in products)
        if not fits or not near or is_sharded(param):
            return None
        left = torch.cat([post * scale for post, _, scale in products])
        right = torch.cat([pre for _, pre, _ in products])
        factor = float(scales.get(name, 1.0))
        skipped = {}
        if self.nonfinite != "ignore":
            if not _is_small(left, right, factor):
                return None
            if self.nonfinite == "skip" and name not in self._skipped:
                skipped = {name: torch.zeros((), dtype=torch.long)}
        return Change([name], [partial(param.addmm_, left.T, right, alpha=factor)], skipped)

    def _sum(self, names: Sequence[str], scales: dict[str, float]) -> Change:
        """Whatever is pending: all parameters change, or none."""
        changes = self._changes(names)
        factors = [float(scales.get(name, 1.0)) for name in changes]
        current = [self.target(name).detach() for name in changes]
        deltas, skipped = self._finite(changes, current, factors)
        calls = []
        if deltas:
            targets = [local(param) for param in current]
            if len(set(factors)) > 1:
                deltas, factors = list(torch._foreach_mul(deltas, factors)), [1.0]
            calls = [partial(torch._foreach_add_, targets, deltas, alpha=factors[0])]
            # autograd saved the whole parameter, not this process' shard of it
            sharded = [self.target(name) for name in changes]
            calls += [partial(increment_version, p) for p in sharded if is_sharded(p)]
        return Change(list(changes), calls, skipped)

    def _changes(self, names: Sequence[str]) -> dict[str, Tensor]:
        """The changes pending, by name; those without a bound are made with few kernels.

        Of a sharded parameter it is the change of this process' shard.
        """
        changes: dict[str, Tensor] = {}
        plain: dict[str, tuple[Tensor, Tensor]] = {}
        for name in names:
            accumulator = self._getacc_(self, name)
            if accumulator.empty:
                continue
            param = self.target(name).detach()
            pos, neg = (
                None if part is None else shard_like(part, param)
                for part in accumulator.parts(param)
            )
            param = local(param)
            if not accumulator.bounded and pos is not None and neg is not None:
                plain[name] = (pos, neg)
            delta = None if name in plain else accumulator.delta(param, (pos, neg))
            changes[name] = param if delta is None else delta
        if plain:
            pairs = plain.values()
            deltas = torch._foreach_sub([pos for pos, _ in pairs], [neg for _, neg in pairs])
            changes.update(zip(plain, deltas, strict=True))
        return changes

    def _finite(
        self, changes: dict[str, Tensor], params: list[Tensor], factors: list[float]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """The changes with the policy applied: one reduction each, no wait unless it raises.

        And how often changes were dropped, if these are applied, of each parameter.
        """
        deltas = list(changes.values())
        if self.nonfinite == "ignore" or not deltas:
            return deltas, {}
        bad = [
            anywhere(_overflows(delta, param, factor), param)
            for delta, param, factor in zip(deltas, params, factors, strict=True)
        ]
        if self.nonfinite == "raise":
            named = [name for name, is_bad in zip(changes, bad, strict=True) if bool(is_bad)]
            if named:
                raise NonFiniteUpdateError(
                    f"The update of parameter{'s' * (len(named) > 1)} {', '.join(named)} of"
                    f" `{self.label}` holds NaN or Inf. Nothing was applied: look at the activity"
                    " and the rates, and drop the update with `clear()`, or set"
                    " `nonfinite = 'skip'`."
                )
            return deltas, {}
        skipped = {}
        for name, is_bad in zip(changes, bad, strict=True):
            count = self._skipped.get(name)
            skipped[name] = is_bad.long() if count is None else count.to(is_bad.device) + is_bad
        return [d.masked_fill(b, 0) for d, b in zip(deltas, bad, strict=True)], skipped

    def gradients(self) -> tuple[dict[str, Tensor], list[partial[Any]]]:
        """What is pending as descents, by name, and what consumes it when all of it is called.

        Raises:
            NonFiniteUpdateError: if a change holds NaN or Inf and the policy is ``"raise"``.
        """
        with torch.no_grad():
            changes = self._changes(self.names)
            params = {name: self.target(name) for name in changes}
            current = [param.detach() for param in params.values()]
            deltas, skipped = self._finite(changes, current, [1.0] * len(current))
            found = {
                name: sharded_like(delta.detach().neg().to(param.dtype), param)
                for (name, param), delta in zip(params.items(), deltas, strict=True)
            }
        accumulators = [self._getacc_(self, name) for name in self.names]
        consume = [call for each in accumulators for call in each.emptying()]
        return found, [partial(self._skipped.update, skipped), *consume]

    # ------------------------------------------------------------------ accumulators by name
    @staticmethod
    def _getacc_(self: Updater, attr: str) -> Accumulator:
        """Gets the accumulator of a parameter."""
        accumulator = self._modules[attr]
        assert isinstance(accumulator, Accumulator)
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
        if name in self.__dict__.get("names", ()):
            self._setacc_(self, value, name)
        elif isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            if not name.startswith("_") and isinstance(value, (Tensor, tuple)) and name != "names":
                self._checked((name,))  # a change of what this updater does not have
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__.get("names", ()):
            self._delacc_(self, name)
        else:
            super().__delattr__(name)

    def get_extra_state(self) -> dict[str, Tensor]:
        """How often updates were dropped."""
        return {name: count.clone() for name, count in self._skipped.items()}

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not how often which updates were dropped."""
        place = f"the updater of `{self.label}`"
        check_that(_COUNTS.fits(state), place, _COUNTS.should, state)
        check_that(state.keys() <= set(self.names), place, f"names among {self.names}", [*state])

    def set_extra_state(self, state: dict[str, Tensor]) -> None:
        """Takes what :meth:`get_extra_state` gave.

        Raises:
            RuntimeError: if it is anything else; then nothing has changed.
        """
        self.check_extra_state(state)
        self._skipped = {name: count.clone() for name, count in state.items()}

    def extra_repr(self) -> str:
        """The module it is for."""
        return f"of {self.label}, nonfinite={self.nonfinite!r}"


_COUNTS = named(
    Kind("a tensor of one integer", lambda v: REAL.fits(v) and not v.ndim and v.dtype == torch.long)
)


def _overflows(delta: Tensor, param: Tensor, factor: float) -> Tensor:
    """Whether any element is NaN or Inf, or is so when it is scaled and cast to be applied."""
    if not delta.numel():
        return torch.zeros((), dtype=torch.bool, device=delta.device)
    low, high = delta.aminmax()  # NaN where any element is
    dtype = param.dtype if param.is_floating_point() else delta.dtype
    return ~torch.isfinite((torch.maximum(-low, high) * factor).to(dtype))


def _is_small(left: Tensor, right: Tensor, factor: float) -> bool:
    """Whether no element of ``factor · leftᵀ right`` can be NaN or too large, by their largest."""
    if not left.numel() or not right.numel():
        return False
    largest = max(1.0, abs(factor)) * len(left)  # before it is scaled, and after
    for side in (left, right):
        low, high = side.aminmax()  # NaN where any element is
        largest *= max(-low.item(), high.item())
    return largest < torch.finfo(left.dtype).max


def _constrain(constraint: Constraint, param: Tensor, name: str) -> None:
    _check_in_place(constraint(param), param, name)


def _check_in_place(result: Any, param: Tensor, name: str) -> None:
    if isinstance(result, Tensor) and result.data_ptr() != param.data_ptr():
        raise TypeError(
            f"The constraint on `{name}` should change the parameter in place. Found one that gives"
            " a new tensor, which would be lost: use `clamp_`, `copy_` and the like."
        )
