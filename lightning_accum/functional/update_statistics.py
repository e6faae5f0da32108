"""Statistics of the update of a parameter, and of neurons' activity."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers, check_shape, check_tensors
from lightning_accum.functional.dtypes import widened

#: The statistics of :func:`update_statistics` in their order, without the last, which is a count.
AVERAGED = (
    "update_norm",
    "weight_norm",
    "ratio",
    "pos_norm",
    "neg_norm",
    "balance",
    "at_lower",
    "at_upper",
    "at_bound",
    "zero_share",
)


class MeasuredChange(NamedTuple):
    """Measures of the change of a parameter, or of its shares or several as one vector."""

    update_norm: Tensor | float
    norm_before: Tensor | float
    weight_norm: Tensor | float
    pos_norm: Tensor | float
    neg_norm: Tensor | float
    pos_sum: Tensor | float
    neg_sum: Tensor | float
    zeros: Tensor | float
    nonfinite: Tensor | float
    at_lower: Tensor | float
    at_upper: Tensor | float
    size: int


@torch.no_grad()
def measure_change(
    before: Tensor,
    after: Tensor,
    pos: Tensor | None = None,
    neg: Tensor | None = None,
    lower: float | None = None,
    upper: float | None = None,
) -> MeasuredChange:
    """Measures the change of one parameter; the arguments are those of `update_statistics`."""
    check_numbers(**{k: v for k, v in (("lower", lower), ("upper", upper)) if v is not None})
    parts_given = {k: v for k, v in (("pos", pos), ("neg", neg)) if v is not None}
    check_tensors(before=before, after=after, **parts_given)
    fits, should = before.shape == after.shape, f"shape {tuple(before.shape)}, as `before`"
    check_shape(fits, "after", after, should, "pass the same parameter before and after")
    wide = [widened(before), widened(after)]
    delta = wide[1] - wide[0]
    parts = [delta.new_zeros(1) if part is None else widened(part) for part in (pos, neg)]
    norms = [_norm(_finite(value)) for value in (delta, *wide, *parts)]
    sums = [_norm(_finite(part), 1) for part in parts]
    zeros = delta.numel() - delta.count_nonzero()
    nonfinite = [(v - v).count_nonzero() for v in (delta, *parts)]  # NaN, if `v` is not finite
    # The limit is rounded as the weight is, so that a weight clamped to 0.3 in bfloat16 is at 0.3.
    none = torch.zeros_like(zeros)
    at_lower = none if lower is None else (after <= after.new_full((), lower)).count_nonzero()
    at_upper = none if upper is None else (after >= after.new_full((), upper)).count_nonzero()
    counts = zeros, torch.stack(nonfinite).sum(), at_lower, at_upper
    return MeasuredChange._make([*norms, *sums, *counts, delta.numel()])


def combined(changes: Sequence[MeasuredChange]) -> MeasuredChange:
    """Returns several changes as that of one vector."""
    device = torch.as_tensor(changes[0].update_norm).device
    *rows, sizes = zip(*changes, strict=True)
    parts = [torch.stack([torch.as_tensor(v, device=device) for v in row]) for row in rows]
    norms, sums = map(_norm, parts[:5]), (part.sum() for part in parts[5:])
    return MeasuredChange._make([*norms, *sums, sum(sizes)])


def change_statistics(change: MeasuredChange) -> dict[str, Any]:
    """Returns the statistics of a change, tensors or numbers as its measures are."""
    size, both = max(change.size, 1), change.pos_sum + change.neg_sum
    found = change._asdict() | {
        "ratio": _over(change.update_norm, change.norm_before),
        "balance": _over(change.pos_sum - change.neg_sum, both),
        "at_lower": change.at_lower / size,
        "at_upper": change.at_upper / size,
        "at_bound": (change.at_lower + change.at_upper) / size,
        "zero_share": change.zeros / size,
    }
    return {name: found[name] for name in (*AVERAGED, "nonfinite")}


@torch.no_grad()
def update_statistics(
    before: Tensor,
    after: Tensor,
    pos: Tensor | None = None,
    neg: Tensor | None = None,
    lower: float | None = None,
    upper: float | None = None,
) -> dict[str, Any]:
    r"""Measures the change :math:`\Delta w = w' - w` that was actually applied to a parameter.

    ========================  ====================================================================
    ``update_norm``           :math:`\|\Delta w\|_2`
    ``weight_norm``           :math:`\|w'\|_2`
    ``ratio``                 :math:`\|\Delta w\|_2 / \|w\|_2`, with 0/0 = 0; infinite if all
                              weights were zero
    ``pos_norm, neg_norm``    :math:`\|u_+\|_2` and :math:`\|u_-\|_2`, 0 for a missing part
    ``balance``               :math:`(\|u_+\|_1 - \|u_-\|_1) / (\|u_+\|_1 + \|u_-\|_1)`, 0 for 0/0
    ``at_lower, at_upper``    share of weights at or beyond the limit, 0 without a limit
    ``at_bound``              their sum
    ``zero_share``            share of weights with :math:`\Delta w = 0`
    ``nonfinite``             number of NaN and Inf in :math:`\Delta w`, :math:`u_+` and :math:`u_-`
    ========================  ====================================================================

    Norms are over the finite values, so that a NaN is counted and does not hide the other values.
    They are computed in at least float32, without a host synchronisation.

    Args:
        before: the parameter :math:`w` before the update, of any shape; a copy, not a view.
        after: the parameter :math:`w'` after the update, of the same shape.
        pos: potentiating part :math:`u_+` that was pending, of any shape.
        neg: depressing part :math:`u_-` that was pending, of any shape.
        lower: lower limit, compared in the parameter's dtype.
        upper: upper limit, compared in the parameter's dtype.

    Returns:
        The statistics by name, without dimensions: ``nonfinite`` int64, the others floats.

    Raises:
        ValueError: if ``before`` and ``after`` differ in shape.

    Example:
        >>> import torch
        >>> w = torch.tensor([3.0, 4.0])
        >>> found = update_statistics(w, torch.tensor([3.0, 4.5]), lower=0.0, upper=4.5)
        >>> {name: round(float(found[name]), 3) for name in ("update_norm", "ratio", "at_upper")}
        {'update_norm': 0.5, 'ratio': 0.1, 'at_upper': 0.5}
    """
    return change_statistics(measure_change(before, after, pos, neg, lower, upper))


@torch.no_grad()
def spike_counts(spikes: Tensor) -> Tensor:
    """Counts the spikes ``[T, B, ...]`` of each neuron, over time and batch: ``[N]`` in float32."""
    check_tensors(spikes=spikes)
    should = "shape [T, B, ...] with at least one neuron dimension"
    check_shape(spikes.ndim >= 3, "spikes", spikes, should, "add the missing ones with `unsqueeze`")
    return spikes.flatten(2).sum((0, 1), dtype=torch.float32)


def count_statistics(counts: Tensor, slots: Tensor | int) -> dict[str, Tensor]:
    """Returns the mean rate per step and sample of neurons, and the share that never fired."""
    return {
        "firing_rate": counts.mean() / torch.as_tensor(slots).clamp(min=1),
        "silent_share": (counts == 0).float().mean(),
    }


def _finite(value: Tensor) -> Tensor:
    return value.nan_to_num(0.0, 0.0, 0.0)


def _norm(value: Tensor, order: int = 2) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(value, order)
    return norm


def _over(value: Any, by: Any) -> Any:
    """Returns a quotient, with 0/0 = 0."""
    if isinstance(value, Tensor):
        return torch.where(value != 0, value / by, torch.zeros_like(by))
    return 0.0 if not value else value / by if by else math.inf
