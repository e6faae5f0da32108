"""Statistics of the update of a parameter, of what of it was lost, and of neurons' activity."""

from collections.abc import Sequence
from typing import NamedTuple

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

#: The distance from a limit up to which a weight does not count, in terms of the largest weight.
NEAR = 0.01


class MeasuredChange(NamedTuple):
    """Measures of the change of one parameter, which can be combined over parameters."""

    update_norm: Tensor
    norm_before: Tensor
    norm_after: Tensor
    zeros: Tensor
    nonfinite: Tensor
    size: int


@torch.no_grad()
def measure_change(before: Tensor, after: Tensor) -> MeasuredChange:
    """Measures the change of one parameter between a copy of it from before and itself."""
    fits, should = before.shape == after.shape, f"shape {tuple(before.shape)}, as `before`"
    check_shape(fits, "after", after, should, "pass the same parameter before and after")
    before, after = widened(before), widened(after)
    delta = after - before
    return MeasuredChange(
        update_norm=_norm(_finite(delta)),
        norm_before=_norm(_finite(before)),
        norm_after=_norm(_finite(after)),
        zeros=delta.numel() - delta.count_nonzero(),
        nonfinite=_nonfinite(delta),
        size=delta.numel(),
    )


@torch.no_grad()
def change_statistics(changes: Sequence[MeasuredChange]) -> dict[str, Tensor]:
    """Returns the statistics that need no parts and no limits, of all changes as one vector."""
    change = changes[0]
    if len(changes) > 1:
        columns = zip(*(each[:-1] for each in changes), strict=True)
        parts = [torch.stack([each.to(values[0].device) for each in values]) for values in columns]
        norms, counts = map(_norm, parts[:3]), (part.sum() for part in parts[3:])
        change = MeasuredChange._make([*norms, *counts, sum(each.size for each in changes)])
    update_norm, norm_before, norm_after, zeros, nonfinite, size = change
    return {
        "update_norm": update_norm,
        "weight_norm": norm_after,
        "ratio": torch.where(update_norm > 0, update_norm / norm_before, 0.0),
        "zero_share": zeros.float() / max(size, 1),
        "nonfinite": nonfinite,
    }


@torch.no_grad()
def update_statistics(
    before: Tensor,
    after: Tensor,
    pos: Tensor | None = None,
    neg: Tensor | None = None,
    lower: float | None = None,
    upper: float | None = None,
) -> dict[str, Tensor]:
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
    check_numbers(**{k: v for k, v in (("lower", lower), ("upper", upper)) if v is not None})
    parts_given = {k: v for k, v in (("pos", pos), ("neg", neg)) if v is not None}
    check_tensors(before=before, after=after, **parts_given)
    found = change_statistics([measure_change(before, after)])
    zero = torch.zeros_like(found["update_norm"])
    parts = [zero if part is None else widened(part) for part in (pos, neg)]
    pos_norm, neg_norm = (_norm(_finite(part)) for part in parts)
    up, down = (_norm(_finite(part), 1) for part in parts)
    total = up + down
    # The limit is rounded as the weight is, so that a weight clamped to 0.3 in bfloat16 is at 0.3.
    at_lower = zero if lower is None else _share(after <= after.new_full((), lower))
    at_upper = zero if upper is None else _share(after >= after.new_full((), upper))
    counts = [_nonfinite(part) for part in parts]
    found |= {
        "pos_norm": pos_norm,
        "neg_norm": neg_norm,
        "balance": torch.where(total > 0, (up - down) / total, zero),
        "at_lower": at_lower,
        "at_upper": at_upper,
        "at_bound": at_lower + at_upper,
        "nonfinite": torch.stack([found["nonfinite"], *counts]).sum(),
    }
    return {name: found[name] for name in (*AVERAGED, "nonfinite")}


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


@torch.no_grad()
def lost_change(
    before: Tensor,
    after: Tensor,
    parts: tuple[Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None] = (None, None),
) -> tuple[Tensor, Tensor]:
    """Returns how much of a pending change had no effect, and how much there was."""
    # Weights near a limit or beyond it do not count: what a limit or soft bound holds is not lost.
    pos, neg = (torch.zeros_like(after) if part is None else part for part in parts)
    wanted, near, (lower, upper) = (pos - neg).abs(), NEAR * after.abs().max(), limits
    if lower is not None:
        wanted = wanted.masked_fill(after <= lower + near, 0.0)
    if upper is not None:
        wanted = wanted.masked_fill(after >= upper - near, 0.0)
    return wanted.masked_fill(after != before, 0.0).sum(), wanted.sum()


def _finite(value: Tensor) -> Tensor:
    return value.nan_to_num(0.0, 0.0, 0.0)


def _norm(value: Tensor, order: int = 2) -> Tensor:
    norm: Tensor = torch.linalg.vector_norm(value, order)
    return norm


def _nonfinite(value: Tensor) -> Tensor:
    return (value - value).count_nonzero()  # NaN, which is not 0, if the value is not finite


def _share(mask: Tensor) -> Tensor:
    return mask.count_nonzero().float() / max(mask.numel(), 1)
