"""The changes of several parameters, checked before the first of them is applied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from lightning_accum._checks import check_numbers
from lightning_accum._compat import foreach
from lightning_accum.distributed.shards import is_sharded, local, shard_like, sharded_like
from lightning_accum.updates.accumulator import Accumulator
from lightning_accum.updates.nonfinite import NonFiniteGuard
from lightning_accum.updates.products import product_shape


class Pending(NamedTuple):
    """A parameter for which a change is pending.

    Args:
        name: the parameter's name.
        accumulator: holds the change.
        param: the parameter.
        factor: multiplies the bounded change.
        options: keywords for the bounds that take them.
    """

    name: str
    accumulator: Accumulator
    param: Tensor
    factor: float
    options: Mapping[str, Any] = MappingProxyType({})


class Change(NamedTuple):
    """A checked change of several parameters.

    Args:
        names: the names of the parameters.
        calls: functions of torch that apply it.
        counts: by name, how often changes have been dropped when it is applied.
    """

    names: list[str]
    calls: list[partial[Any]]
    counts: dict[str, Tensor]


def checked_factors(names: Sequence[str], scale: float | dict[str, float]) -> dict[str, float]:
    """Returns the factors of changes by name.

    Args:
        names: the parameters that take a factor which is not given by name.
        scale: one factor, or factors by name.

    Raises:
        TypeError: if a factor is not a number.
    """
    factors = scale if isinstance(scale, dict) else dict.fromkeys(names, scale)
    if not all(type(factor) is float for factor in factors.values()):
        check_numbers(**{f"scale[{name!r}]": factor for name, factor in factors.items()})
    return factors


def checked_change(label: str, pending: Sequence[Pending], guard: NonFiniteGuard) -> Change:
    """Computes and checks the changes of all parameters, and changes none of them.

    Args:
        label: the name of the module, for messages.
        pending: the parameters for which a change is pending.
        guard: the policy for NaN and Inf.

    Raises:
        NonFiniteUpdateError: if a change holds NaN or Inf and the policy is ``"raise"``.
    """
    change = None
    if len(pending) == 1:
        change = stacked_change(pending[0], guard) or _product(pending[0], guard)
    return change or _sum(label, pending, guard)


def _product(pending: Pending, guard: NonFiniteGuard) -> Change | None:
    """Returns the change as one product, which is added to the only parameter that changes.

    Returns:
        ``None`` if the change is not such a product, or may overflow.
    """
    name, accumulator, param, factor, _ = pending
    products, param = accumulator.deferred, param.detach()
    if not products or is_sharded(param):
        return None
    sides = [side for left, right, _ in products for side in (left, right)]
    if not all(side.is_cpu and side.dtype == torch.float32 for side in (param, *sides)):
        return None
    if param.shape != product_shape(products[0]):
        return None
    left = torch.cat([post for post, _, _ in products])
    left.mul_(_column(tuple((len(post), scale) for post, _, scale in products)))
    right = torch.cat([pre for _, pre, _ in products])
    if not guard.passes((left, right, factor)):
        return None
    call = partial(param.addmm_, left.T, right, alpha=factor)
    return Change([name], [call], guard.counts_with(name))


def stacked_change(pending: Pending, guard: NonFiniteGuard) -> Change | None:
    """Returns the change as one product of sides that are stacked already.

    Args:
        pending: the only parameter for which a change is pending.
        guard: the policy for NaN and Inf.

    Returns:
        ``None`` if the change is anything else, or may overflow.
    """
    name, accumulator, param, factor, _ = pending
    stacked = accumulator.stacked
    if stacked is None or param.dtype is not stacked.left.dtype:
        return None
    if not param.is_cpu or is_sharded(param):
        return None
    if not guard.passes_bound(stacked.bound, factor, param.dtype):
        return None
    call = partial(param.detach().addmm_, stacked.left, stacked.right, alpha=factor)
    return Change([name], [call], guard.counts_with(name))


@lru_cache(64)
def _column(factors: tuple[tuple[int, float], ...]) -> Tensor:
    """Returns a factor for each row; the rows of learning at every step have the same ones."""
    with torch.inference_mode(False):
        rows = [torch.full((rows, 1), factor, device="cpu") for rows, factor in factors]
        return torch.cat(rows).float()


@torch.no_grad()
def _sum(label: str, pending: Sequence[Pending], guard: NonFiniteGuard) -> Change:
    """Returns any change, as tensors that are added to the parameters."""
    params = [each.param.detach() for each in pending]
    factors = [each.factor for each in pending]
    deltas, counts = guard.filtered(label, _deltas(pending), params, factors)
    calls: list[partial[Any]] = []
    if deltas:
        if len(set(factors)) > 1:
            deltas = [delta * factor for delta, factor in zip(deltas, factors, strict=True)]
            factors = [1.0]
        targets = [local(param) for param in params]
        calls = [partial(foreach("add_"), targets, deltas, alpha=factors[0])]
        # autograd saved the whole parameter, not the shard of this process
        calls += [partial(increment_version, p.param) for p in pending if is_sharded(p.param)]
    return Change([each.name for each in pending], calls, counts)


def gradients(
    label: str, pending: Sequence[Pending], guard: NonFiniteGuard
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Returns the negative changes of all parameters, and the counts of dropped ones.

    Args:
        label: the name of the module, for messages.
        pending: the parameters for which a change is pending.
        guard: the policy for NaN and Inf.

    Raises:
        NonFiniteUpdateError: if a change holds NaN or Inf and the policy is ``"raise"``.
    """
    params = [each.param.detach() for each in pending]
    deltas, counts = guard.filtered(label, _deltas(pending), params, [1.0] * len(params))
    found = {
        each.name: sharded_like(delta.detach().neg().to(each.param.dtype), each.param)
        for each, delta in zip(pending, deltas, strict=True)
    }
    return found, counts


def _deltas(pending: Sequence[Pending]) -> dict[str, Tensor]:
    """Returns the bounded changes by name, in few kernels for those without a bound.

    The change of a sharded parameter is that of this process's shard.
    """
    deltas: dict[str, Tensor] = {}
    unbounded: dict[str, tuple[Tensor, Tensor]] = {}
    for name, accumulator, param, _, options in pending:
        param = param.detach()
        pos, neg = (
            None if part is None else shard_like(part, param) for part in accumulator.parts(param)
        )
        param = local(param)
        deltas[name] = param  # keeps the order of the names
        if not accumulator.bounded and pos is not None and neg is not None:
            unbounded[name] = (pos, neg)
        elif not accumulator.bounded and pos is not None:
            deltas[name] = pos  # which nothing writes to before it is applied
        elif (delta := accumulator.delta(param, (pos, neg), options)) is not None:
            deltas[name] = delta
    if unbounded:
        pairs = unbounded.values()
        found = foreach("sub")([pos for pos, _ in pairs], [neg for _, neg in pairs])
        deltas.update(zip(unbounded, found, strict=True))
    return deltas
