"""Changes of several parameters, checked for NaN and Inf before the first is applied."""

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import compress
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from lightning_accum._checks import check_choice
from lightning_accum._compat.torch import foreach
from lightning_accum.distributed.shards import any_process, local, shard_like, sharded_like
from lightning_accum.updates.part import StackedProducts, product_shape
from lightning_accum.updates.targets import Target

NonFinite = Literal["raise", "skip", "ignore"]


class NonFiniteUpdateError(ArithmeticError):
    """An update that is about to be applied holds NaN or Inf."""


class NonFiniteGuard:
    """Keeps changes that hold NaN or Inf from parameters, and counts those that it drops."""

    def __init__(self, policy: NonFinite) -> None:
        check_policy(policy)
        self.policy = policy
        self.counts: dict[str, Tensor] = {}

    def filtered(
        self, label: str, targets: Sequence[Target], deltas: list[Tensor]
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
    low, high = delta.aminmax()  # both are NaN if any element is
    dtype = param.dtype if param.is_floating_point() else delta.dtype
    # Operations of torch on single numbers take longer than all else for a small parameter.
    most = max(-low.item(), high.item()) * max(1.0, abs(factor)) if delta.is_cpu else math.inf
    if most < torch.finfo(dtype).max / 2:
        return torch.zeros((), dtype=torch.bool)
    return ~torch.isfinite((torch.maximum(-low, high) * factor).to(dtype))


_add_, _sub = foreach("add_"), foreach("sub")
_CALL: Callable[[partial[Any]], Any] = partial.__call__


class Change(NamedTuple):
    """A checked change of several parameters."""

    targets: list[Target]
    calls: list[partial[Any]]  # functions of torch that apply it
    counts: dict[str, Tensor]  # by name, how often changes have been dropped when it is applied


def checked_change(label: str, targets: list[Target], guard: NonFiniteGuard) -> Change:
    """Computes and checks the changes of all parameters, and changes none of them."""
    found = None
    if len(targets) == 1 and targets[0].accumulator.deferred:
        stacked = targets[0].accumulator.stacked or _stacked(targets[0], guard)
        found = stacked_change(targets[0], stacked, guard)
    return found or _sum(label, targets, guard)


def stacked_change(
    target: Target, stacked: StackedProducts | None, guard: NonFiniteGuard
) -> Change | None:
    """Returns the change of the only parameter that changes, as one product of stacked sides."""
    param = target.param
    if stacked is None or target.sharded or not param.is_cpu:
        return None
    if param.dtype is not stacked.left.dtype:
        return None
    most = stacked.bound * max(1.0, abs(target.factor))  # before it is scaled, and after
    if guard.policy != "ignore" and not most < torch.finfo(param.dtype).max:
        return None
    call = partial(param.detach().addmm_, stacked.left, stacked.right, alpha=target.factor)
    new = guard.policy == "skip" and target.name not in guard.counts
    return Change([target], [call], {target.name: torch.zeros(()).long()} if new else {})


def _stacked(target: Target, guard: NonFiniteGuard) -> StackedProducts | None:
    """Stacks the sides of deferred products, if all are as the parameter and none is empty."""
    products = target.accumulator.deferred
    sides = [side for left, right, _ in products for side in (left, right)]
    if not all(side.is_cpu and side.dtype == torch.float32 for side in sides):
        return None
    if target.param.shape != product_shape(products[0]) or not target.param.numel():
        return None
    left = torch.cat([post * factor for post, _, factor in products])
    stacked = StackedProducts([], [], left, torch.cat([pre for _, pre, _ in products]))
    if guard.policy != "ignore" and len(left):
        # No element is larger than the largest factors allow; NaN if any factor is.
        ends = [side.aminmax() for side in (left, stacked.right)]
        stacked.bound = math.prod(
            (max(-low.item(), high.item()) for low, high in ends), start=len(left)
        )
    return stacked


@torch.no_grad()
def _sum(label: str, targets: list[Target], guard: NonFiniteGuard) -> Change:
    """Returns any change, as tensors that are added to the parameters."""
    deltas, counts = guard.filtered(label, targets, _deltas(targets))
    if not targets:
        return Change(targets, [], counts)
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
    return Change(targets, [partial(_add_, params, deltas, alpha=factor), *versions], counts)


def gradients(
    label: str, targets: Sequence[Target], guard: NonFiniteGuard
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the negative changes of all parameters, and the counts of dropped ones."""
    deltas, counts = guard.filtered(label, targets, _deltas(targets))
    found = {
        each.name: sharded_like(delta.detach().neg().to(each.param.dtype), each.param)
        for each, delta in zip(targets, deltas, strict=True)
    }
    return found, counts


def _deltas(targets: Sequence[Target]) -> list[Tensor]:
    """Returns the bounded changes, in few kernels for those without a bound."""
    # The change of a sharded parameter is that of this process's shard.
    deltas: list[Tensor] = []
    unbounded: list[tuple[int, Tensor, Tensor]] = []
    for place, target in enumerate(targets):
        param, accumulator = target.param.detach(), target.accumulator
        pos, neg = accumulator.parts(param)
        if target.sharded:
            pos = None if pos is None else shard_like(pos, param)
            neg = None if neg is None else shard_like(neg, param)
            param = local(param)
        if accumulator.bounded or pos is None:
            delta = accumulator.delta(param, (pos, neg), target.options)
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
