"""The statistics of an update, in one pass over the weights if there is a kernel."""

import ctypes
import math
from typing import Any

from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.functional.update_statistics import (
    MeasuredChange,
    change_statistics,
    measure_change,
)
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.kernel_library import arguments


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
    others = ((each, before.shape) for each in (after, pos, neg))
    kernel = library.kernel_for(before.dtype, *others) if library.is_plain(before) else None
    if kernel is None:
        return measure_change(before, after, pos, neg, lower, upper)
    check_numbers(**{k: v for k, v in (("lower", lower), ("upper", upper)) if v is not None})
    found = (ctypes.c_double * 11)()
    limits = (math.nan if limit is None else float(limit) for limit in (lower, upper))
    kernel.change_sums(*arguments(before, after, pos, neg, before.numel(), *limits), found)
    return MeasuredChange._make([*map(math.sqrt, found[:5]), *found[5:], before.numel()])


def fast_statistics(*args: Any, **kwargs: Any) -> dict[str, Tensor | float]:
    """Returns the statistics of an update; the arguments are those of ``update_statistics``."""
    found = change_statistics(fast_measures(*args, **kwargs)).items()
    return {name: value.float() if isinstance(value, Tensor) else value for name, value in found}
