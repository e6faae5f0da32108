"""The statistics of an update, in one pass over the weights if there is a kernel."""

import ctypes
import math
from collections.abc import Mapping

from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.functional.update_statistics import NEAR, lost_change, update_statistics
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.kernel_library import arguments


def _kernel_for(before: Tensor, *others: Tensor | None) -> ctypes.CDLL | None:
    if not library.is_plain(before):
        return None
    values = ((each, before.shape) for each in others)
    return library.kernel_for(before.dtype) if library.are_values(before.dtype, *values) else None


def _arguments(
    tensors: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None],
) -> list[object]:
    """Returns where tensors begin, their size, and the limits, NaN for one that is not set."""
    ends = (math.nan if limit is None else float(limit) for limit in limits)
    return arguments(*tensors, tensors[0].numel(), *ends)


def fast_statistics(
    before: Tensor,
    after: Tensor,
    pos: Tensor | None = None,
    neg: Tensor | None = None,
    lower: float | None = None,
    upper: float | None = None,
) -> Mapping[str, Tensor | float]:
    """Returns the statistics of the change that was applied to a parameter."""
    # The plain form is `update_statistics`, which has these arguments, and takes some thirty
    # operations of torch. The kernel's sums are numbers.
    check_numbers(**{k: v for k, v in (("lower", lower), ("upper", upper)) if v is not None})
    kernel = _kernel_for(before, after, pos, neg)
    if kernel is None:
        plain = update_statistics(before, after, pos, neg, lower, upper)
        return {name: value.float() for name, value in plain.items()}
    found = (ctypes.c_double * 11)()
    kernel.change_sums(*_arguments((before, after, pos, neg), (lower, upper)), found)
    # Norms of the finite values, sums of the sizes in both parts, and counts.
    moved, was, now, up, down = map(math.sqrt, found[:5])
    raised, lowered, zeros, nonfinite, at_lower, at_upper = found[5:]
    size, both = max(before.numel(), 1), raised + lowered
    return {
        "update_norm": moved,
        "weight_norm": now,
        "ratio": (moved / was if was else math.inf) if moved else 0.0,
        "pos_norm": up,
        "neg_norm": down,
        "balance": (raised - lowered) / both if both else 0.0,
        "at_lower": at_lower / size,
        "at_upper": at_upper / size,
        "at_bound": at_lower / size + at_upper / size,
        "zero_share": zeros / size,
        "nonfinite": nonfinite,
    }


def fast_lost_change(
    before: Tensor,
    after: Tensor,
    parts: tuple[Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None] = (None, None),
) -> tuple[Tensor, Tensor] | tuple[float, float]:
    """Returns how much of a pending change had no effect, and how much there was."""
    # The plain form is `lost_change`, which has these arguments. The kernel's sums are numbers.
    kernel = _kernel_for(before, after, *parts)
    if kernel is None:
        return lost_change(before, after, parts, limits)
    found = (ctypes.c_double * 2)()
    kernel.lost_sums(*_arguments((before, after, *parts), limits), *arguments(NEAR), found)
    return found[0], found[1]
