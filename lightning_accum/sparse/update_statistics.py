"""The statistics of an update, in one pass over the weights if there is a kernel."""

import ctypes
import math
from typing import Any

from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.functional.update_statistics import (
    NEAR,
    MeasuredChange,
    change_statistics,
    lost_change,
    measure_change,
)
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.kernel_library import arguments


def _kernel_for(before: Tensor, *others: Tensor | None) -> ctypes.CDLL | None:
    if not library.is_plain(before):
        return None
    values = ((each, before.shape) for each in others)
    return library.kernel_for(before.dtype, *values)


def _arguments(
    tensors: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    limits: tuple[float | None, float | None],
) -> list[object]:
    """Returns where tensors begin, their size, and the limits, NaN for one that is not set."""
    ends = (math.nan if limit is None else float(limit) for limit in limits)
    return arguments(*tensors, tensors[0].numel(), *ends)


def fast_measures(
    before: Tensor,
    after: Tensor,
    pos: Tensor | None = None,
    neg: Tensor | None = None,
    lower: float | None = None,
    upper: float | None = None,
) -> MeasuredChange:
    """Returns the measures of the change of a parameter, numbers if the kernel has summed them."""
    # The plain form is `measure_change`, which takes some thirty operations of torch.
    kernel = _kernel_for(before, after, pos, neg)
    if kernel is None:
        return measure_change(before, after, pos, neg, lower, upper)
    check_numbers(**{k: v for k, v in (("lower", lower), ("upper", upper)) if v is not None})
    found = (ctypes.c_double * 11)()
    kernel.change_sums(*_arguments((before, after, pos, neg), (lower, upper)), found)
    return MeasuredChange._make([*map(math.sqrt, found[:5]), *found[5:], before.numel()])


def fast_statistics(*args: Any, **kwargs: Any) -> dict[str, Tensor | float]:
    """Returns the statistics of an update; the arguments are those of ``update_statistics``."""
    found = change_statistics(fast_measures(*args, **kwargs)).items()
    return {name: value.float() if isinstance(value, Tensor) else value for name, value in found}


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
