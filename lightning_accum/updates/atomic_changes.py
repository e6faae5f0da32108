"""Changes of several parameters, checked for NaN and Inf before the first is applied."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import compress
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from lightning_accum._checks import check_choice, check_numbers, check_taken
from lightning_accum._compat.torch_internals import foreach, own_tensor
from lightning_accum._training_events import SILENT, Observer
from lightning_accum.distributed.shards import (
    any_process,
    is_sharded,
    local,
    shard_like,
    sharded_like,
)
from lightning_accum.updates.constraints import Constraints
from lightning_accum.updates.pending import Pending
from lightning_accum.updates.targets import PendingTarget, parameter_of

NonFinite = Literal["raise", "skip", "ignore"]


class NonFiniteUpdateError(ArithmeticError):
    """An update that is about to be applied holds NaN or Inf."""


class NonFiniteGuard:
    """Keeps changes that hold NaN or Inf from parameters, and counts those that it drops."""

    def __init__(self, policy: NonFinite) -> None:
        check_policy(policy)
        self.policy = policy
        self.counts: dict[str, Tensor] = {}
        self._loaded: dict[str, Tensor] = {}  # counts of an earlier run

    def load(self, counts: dict[str, Tensor]) -> None:
        """Loads copies of counts."""
        self._loaded = {name: count.clone() for name, count in counts.items()}
        self.counts = {name: count.clone() for name, count in counts.items()}

    def lately(self) -> dict[str, int]:
        """Returns the counts since some were loaded, if they were; waits for the device."""
        return {name: int(n) - int(self._loaded.get(name, 0)) for name, n in self.counts.items()}

    def filtered(
        self, label: str, targets: Sequence[PendingTarget], deltas: list[Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Applies the policy to changes, with one reduction each."""
        # It waits for the device only if the policy is `"raise"`.
        if self.policy == "ignore" or not deltas:
            return deltas, {}
        bad = {}
        for target, delta in zip(targets, deltas, strict=True):
            overflows = _overflows(delta, target.param, target.factor)
            bad[target.name] = any_process(overflows, target.param) if target.sharded else overflows
        if self.policy == "raise":
            wrong = list(compress(bad, map(bool, bad.values())))
            if wrong:
                raise NonFiniteUpdateError(
                    f"The update of parameter{'s' * (len(wrong) > 1)} {', '.join(wrong)} of"
                    f" `{label}` holds NaN or Inf. Nothing was applied: look at the activity and"
                    " the rates, and drop the update with `clear()`, or set `nonfinite = 'skip'`."
                )
            return deltas, {}
        counts = {}
        for name, is_bad in bad.items():
            known = self.counts.get(name)
            counts[name] = is_bad.long() if known is None else known.to(is_bad.device) + is_bad
        return [d.masked_fill(b, 0) for d, b in zip(deltas, bad.values(), strict=True)], counts


def check_policy(policy: str) -> None:
    """Raises a ``ValueError`` if a policy is unknown."""
    check_choice("nonfinite", policy, get_args(NonFinite))


def _overflows(delta: Tensor, param: Tensor, factor: float) -> Tensor:
    """Returns whether an element is NaN or Inf, or will be when it is scaled and cast."""
    if not delta.numel():
        return torch.zeros((), dtype=torch.bool, device=delta.device)
    dtype = param.dtype if param.is_floating_point() else delta.dtype
    # No element is larger than the norm, which is found faster, and is NaN if any element is.
    if delta.is_cpu:
        most = torch.linalg.vector_norm(delta).item() * max(1.0, abs(factor))
        if most < torch.finfo(dtype).max / 2:
            return torch.zeros((), dtype=torch.bool)
    low, high = delta.aminmax()
    return ~torch.isfinite((torch.maximum(-low, high) * factor).to(dtype))


_add_, _sub = foreach("add_"), foreach("sub")
_CALL: Callable[[partial[Any]], Any] = partial.__call__


class CheckedChange(NamedTuple):
    """A checked change of several parameters."""

    targets: list[PendingTarget]
    calls: list[partial[Any]]  # functions of torch that apply it
    counts: dict[str, Tensor]  # by name, how often changes have been dropped when it is applied


def _product(target: PendingTarget, guard: NonFiniteGuard) -> CheckedChange | None:
    """Returns the change of the only parameter that changes, if it is a product that waits."""
    param, waiting = target.param, target.pending.waiting
    if waiting is None or target.sharded or target.pending.bounds or not param.is_cpu:
        return None
    fits = param.shape == waiting.shape and param.dtype is waiting.left.dtype
    if not fits or not param.numel():
        return None
    if guard.policy != "ignore":  # no element may overflow before it is scaled, and after
        most = waiting.most() * max(1.0, abs(target.factor))
        if not most < torch.finfo(param.dtype).max:
            return None
    call = partial(param.detach().addmm_, waiting.left, waiting.right, alpha=target.factor)
    new = guard.policy == "skip" and target.name not in guard.counts
    return CheckedChange([target], [call], {target.name: torch.zeros(()).long()} if new else {})


@torch.no_grad()
def _sum(label: str, targets: list[PendingTarget], guard: NonFiniteGuard) -> CheckedChange:
    """Returns any change, as tensors that are added to the parameters."""
    deltas, counts = guard.filtered(label, targets, _deltas(targets))
    if not targets:
        return CheckedChange(targets, [], counts)
    factors, params, versions = set(), [], []
    for target in targets:
        param = target.param.detach()
        if target.sharded:
            # autograd saved the whole parameter, not the shard of this process
            versions.append(partial(increment_version, target.param))
            param = local(param)
        params.append(param)
        factors.add(target.factor)
    factor = factors.pop()
    if factors:
        deltas = [d * target.factor for d, target in zip(deltas, targets, strict=True)]
        factor = 1.0
    return CheckedChange(targets, [partial(_add_, params, deltas, alpha=factor), *versions], counts)


def _deltas(targets: Sequence[PendingTarget]) -> list[Tensor]:
    """Returns the bounded changes, in few kernels for those without a bound."""
    # The change of a sharded parameter is that of this process's shard.
    deltas: list[Tensor] = []
    unbounded: list[tuple[int, Tensor, Tensor]] = []
    for place, target in enumerate(targets):
        param, bounds = target.param.detach(), target.pending.bounds
        pos, neg = target.pending.parts(param)
        if target.sharded:
            pos = None if pos is None else shard_like(pos, param)
            neg = None if neg is None else shard_like(neg, param)
            param = local(param)
        if bounds or pos is None:
            delta = bounds.with_options(target.options).change(param, pos, neg)
            assert delta is not None  # something is pending
            deltas.append(delta)
            continue
        deltas.append(pos)  # which nothing writes to before it is applied
        if neg is not None:
            unbounded.append((place, pos, neg))
    if unbounded:
        places, pos_parts, neg_parts = zip(*unbounded, strict=True)
        for place, delta in zip(places, _sub(pos_parts, neg_parts), strict=True):
            deltas[place] = delta
    return deltas


def call_uninterrupted(*calls: partial[Any]) -> None:
    """Calls functions written in C one after another."""
    # Python looks for an interrupt between its own instructions. None runs between these calls, so
    # that after an interrupt either all of them were made, or none.
    deque(map(_CALL, calls), maxlen=0)


class AtomicChanges:
    """The changes of a module's parameters by an updater: all are applied together, or none is."""

    keywords = ("clear", "scale")  # of a call, in addition to the options of bounds

    def __init__(self, owner: nn.Module, label: str, policy: NonFinite) -> None:
        self.label = label  # of the module
        self.pending: dict[str, Pending] = {}
        self.constraints, self.guard = Constraints(), NonFiniteGuard(policy)
        self.__setstate__({"owner": owner})

    def __getstate__(self) -> dict[str, Any]:
        own = {"owner": self._owner()}
        kept = "label", "pending", "constraints", "guard"
        return {**{name: self.__dict__[name] for name in kept}, **own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        # A copy has no module, no user, and no observer: they are those of the original.
        self.__dict__.update(state)
        self._owner: Callable[[], Any] = weakref.ref(self.__dict__.pop("owner"))  # the updater
        self.module: Callable[[], nn.Module | None] = lambda: None
        self.user: Callable[[], object | None] = lambda: None  # who has claimed this
        self.events: Observer = SILENT  # is told of changes that are applied

    # ------------------------------------------------------------------ the module
    @property
    def parent(self) -> nn.Module:
        """The module; raises a ``RuntimeError`` if there is none."""
        if (module := self.module()) is None:
            raise RuntimeError(
                f"The module `{self.label}` of this updater no longer exists, or this is a copy"
                " that was made apart from its module: bind it with `updater.bind(module)`."
            )
        return module

    def target(self, name: str) -> Tensor:
        """Returns the parameter that the module has under a name now, if it has its shape still."""
        parent, shape = self.parent, self.pending[name].shape
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

    def rearranging(
        self, module: nn.Module, move: Callable[[Tensor], Tensor]
    ) -> list[partial[None]]:
        """Returns calls that move what is pending for the weight, as its synapses move."""
        if module is not self.module() or "weight" not in self.pending:
            return []
        self.events.rearranged(self._owner(), ("weight",))
        return self.pending["weight"].moving(move)

    # ------------------------------------------------------------------ names and keywords
    def checked_names(self, params: Sequence[str]) -> Sequence[str]:
        """Returns ``params``, all names if it is empty, or raises if one of them is unknown."""
        for name in params:
            if name not in self.pending:
                raise AttributeError(
                    f"Argument `params` should name parameters of this updater,"
                    f" {tuple(self.pending)}. Found `{name}`: name it when the updater is made, or"
                    f" call `add({name!r})`."
                )
        return params or tuple(self.pending)

    def takes(self, keyword: str) -> bool:
        """Returns whether a call takes a keyword, or a bound of one of the parameters does."""
        bounds = (each.bounds for each in self.pending.values())
        return keyword in self.keywords or any(each.takes(keyword) for each in bounds)

    # ------------------------------------------------------------------ changes
    def prepare(
        self,
        params: Sequence[str],
        clear: bool,
        scale: float | dict[str, float],
        options: dict[str, Any],
    ) -> Callable[[], None]:
        """Checks what is pending and returns a function that applies it; changes nothing itself."""
        if options:
            check_taken(type(self._owner()).__name__, options, self.keywords, self.takes)
        names = self.checked_names(params)
        if self.constraints:  # bounds may have been set since they were registered
            bounds = {name: self.pending[name].bounds.limits for name in names}
            self.constraints.check_bounds(bounds)
        factors = scale if isinstance(scale, dict) else dict.fromkeys(names, scale)
        for name, factor in factors.items():
            if type(factor) is not float:
                check_numbers(**{f"scale[{name!r}]": factor})
        if isinstance(scale, dict):
            self.checked_names(list(scale))
        targets = self._targets(names, factors, options)
        found = _product(targets[0], self.guard) if len(targets) == 1 else None
        change = found or _sum(self.label, targets, self.guard)
        return partial(self._apply, change, names if clear else ())

    def apply_product(self) -> bool:
        """Applies a product that waits, if it is all that is pending; returns whether it did."""
        names = [name for name, each in self.pending.items() if len(each)]
        if len(names) != 1:
            return False
        (target,) = self._targets(names, {}, {})
        change = _product(target, self.guard)
        if change is not None:
            self._apply(change, names)
        return change is not None

    def _targets(
        self, names: Sequence[str], factors: Mapping[str, float], options: dict[str, Any]
    ) -> list[PendingTarget]:
        """Returns the named parameters for which a change is pending."""
        found = []
        for name in names:
            pending = self.pending[name]
            if len(pending):
                param, factor = self.target(name), float(factors.get(name, 1.0))
                sharded = type(param) is not nn.Parameter and is_sharded(param)
                found.append(PendingTarget(name, param, pending, sharded, factor, options))
        if not found:
            assert self.parent is not None  # else it raises an error
        return found

    def _apply(self, change: CheckedChange, consumed: Sequence[str]) -> None:
        """Applies a checked change, and empties the accumulators that held it."""
        scale, owner = {}, self._owner()
        for target in change.targets:
            scale[target.name] = target.factor
        names = tuple(scale)
        self.events.applying(owner, names)
        emptying: list[partial[None]] = []
        for name in consumed:
            emptying += self.pending[name].emptying()
        # An interrupt leaves the change applied and consumed, or neither. Constraints may raise.
        call_uninterrupted(*change.calls, *emptying)
        self.guard.counts.update(change.counts)
        for name in consumed:
            self.pending[name].clear()
        if self.constraints:
            self.constraints.run(change.targets, self.parent)
        self.events.applied(owner, names, scale)

    def gradients(self) -> tuple[dict[str, Tensor], list[partial[Any]]]:
        """Returns pending changes as gradients, of the opposite sign, and calls that drop them."""
        targets = self._targets(tuple(self.pending), {}, {})
        fns = [(t.name, fn) for t in targets for fn in self.constraints.of(t.name)]
        if fns:
            found = ", ".join(f"`{getattr(fn, '__name__', fn)}` on `{name}`" for name, fn in fns)
            raise ValueError(
                "A parameter whose updates become gradients should have no constraint on its"
                " updater, which does not run it: the optimizer changes the parameter. Found"
                f" {found} of `{self.label}`: do not register it, and call it after each `step()`"
                " of the optimizer, such as `Clamp(0.0, 1.0)(fc.weight.data)`."
            )
        with torch.no_grad():
            deltas, counts = self.guard.filtered(self.label, targets, _deltas(targets))
            grads = {
                each.name: sharded_like(delta.detach().neg().to(each.param.dtype), each.param)
                for each, delta in zip(targets, deltas, strict=True)
            }
        consume = [call for each in self.pending.values() for call in each.emptying()]
        return grads, [partial(self.guard.counts.update, counts), *consume]

    def exported(self, names: Sequence[str]) -> None:
        """Drops the memory of what has become gradients, and tells of it."""
        for each in self.pending.values():
            each.clear()
        self.events.exported(self._owner(), names)
