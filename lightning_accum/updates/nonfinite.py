"""The policy for changes that hold NaN or Inf: raise an error, drop them, or ignore it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import compress
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lightning_accum._state import REAL, Kind, check_that, named
from lightning_accum.distributed.shards import any_process
from lightning_accum.updates.products import Product
from lightning_accum.updates.targets import Target

NonFinite = Literal["raise", "skip", "ignore"]

_COUNTS = named(
    Kind("a tensor of one integer", lambda v: REAL.fits(v) and not v.ndim and v.dtype == torch.long)
)


@cache
def _largest(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).max


class NonFiniteUpdateError(ArithmeticError):
    """An update that is about to be applied holds NaN or Inf."""


class NonFiniteGuard:
    """Keeps changes that hold NaN or Inf from parameters, and counts those that it drops.

    Args:
        policy: ``"raise"``, ``"skip"`` or ``"ignore"``.
    """

    def __init__(self, policy: NonFinite) -> None:
        check_policy(policy)
        self.policy = policy
        self.counts: dict[str, Tensor] = {}
        self.loaded: dict[str, Tensor] = {}  # those of an earlier run

    def filtered(
        self, label: str, targets: Sequence[Target], deltas: list[Tensor]
    ) -> tuple[list[Tensor], dict[str, Tensor]]:
        """Applies the policy to changes, with one reduction each.

        It waits for the device only if the policy is ``"raise"``.

        Returns:
            The changes, zero for those that are dropped, and how often a change of each parameter
            has been dropped when these are applied.

        Raises:
            NonFiniteUpdateError: if a change holds NaN or Inf and the policy is ``"raise"``.
        """
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

    def passes(self, product: Product) -> bool:
        """Returns whether a product may be applied without computing and checking its elements."""
        return self.policy == "ignore" or _is_small(product)

    def passes_bound(self, bound: float, factor: float, dtype: torch.dtype) -> bool:
        """Returns whether a change with a bound of its elements may be applied unchecked."""
        return self.policy == "ignore" or bound * max(1.0, abs(factor)) < _largest(dtype)

    def counts_with(self, name: str) -> dict[str, Tensor]:
        """Returns a count of zero for a parameter whose dropped changes should be counted."""
        if self.policy == "skip" and name not in self.counts:
            return {name: torch.zeros((), dtype=torch.long)}
        return {}

    def counts_of(self) -> dict[str, int]:
        """Returns how often changes were dropped since a state was loaded; waits for the device."""
        return {n: int(k) - int(self.loaded.get(n, 0)) for n, k in self.counts.items()}

    def state(self) -> dict[str, Tensor]:
        """Returns copies of the counts."""
        return {name: count.clone() for name, count in self.counts.items()}

    def check(self, label: str, names: Sequence[str], state: Any) -> None:
        """Raises a ``RuntimeError`` unless :meth:`load` can take this state of ``label``."""
        place = f"the updater of `{label}`"
        check_that(_COUNTS.fits(state), place, _COUNTS.should, state)
        check_that(state.keys() <= set(names), place, f"names among {names}", [*state])

    def load(self, state: dict[str, Tensor]) -> None:
        """Loads copies of counts that :meth:`check` has passed."""
        self.counts = {name: count.clone() for name, count in state.items()}
        self.loaded = {name: count.clone() for name, count in state.items()}


def check_policy(policy: str) -> None:
    """Raises a ``ValueError`` if a policy is unknown."""
    if policy not in get_args(NonFinite):
        raise ValueError(
            f"Argument `nonfinite` should be one of {get_args(NonFinite)}."
            f" Found `nonfinite = {policy!r}`."
        )


def _overflows(delta: Tensor, param: Tensor, factor: float) -> Tensor:
    """Returns whether an element is NaN or Inf, or will be when it is scaled and cast."""
    if not delta.numel():
        return torch.zeros((), dtype=torch.bool, device=delta.device)
    low, high = delta.aminmax()  # both are NaN if any element is
    dtype = param.dtype if param.is_floating_point() else delta.dtype
    return ~torch.isfinite((torch.maximum(-low, high) * factor).to(dtype))


def _is_small(product: Product) -> bool:
    """Returns whether no element of a product can be NaN or too large, by the largest factors."""
    left, right, factor = product
    if not left.numel() or not right.numel():
        return False
    largest = max(1.0, abs(factor)) * len(left)  # before it is scaled, and after
    for side in (left, right):
        low, high = side.aminmax()  # both are NaN if any element is
        largest *= max(-low.item(), high.item())
    return largest < torch.finfo(left.dtype).max
