"""Constraints, which keep a parameter's weights within limits or give them one norm, in place."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_numbers, check_tensors, check_value
from lightning_accum.functional.numbers import widened


@torch.no_grad()
def clamp_(param: Tensor, min: float | None = None, max: float | None = None) -> Tensor:
    """Clamps weights in place, and returns them; raises unless there is a limit, and room."""
    if min is None and max is None:
        raise ValueError(
            "Arguments `min` and `max` should not both be None, because there would be nothing to"
            " clamp to: pass at least one."
        )
    check_tensors(param=param)
    check_finite(**{k: v for k, v in (("min", min), ("max", max)) if v is not None})
    if min is not None and max is not None:
        check_value(min <= max, "min", min, f"at most `max = {max}`")
    return param.clamp_(min=min, max=max)


@torch.no_grad()
def normalize_(
    param: Tensor, norm: float = 1.0, order: float = 1.0, dim: int | Sequence[int] | None = None
) -> Tensor:
    r"""Scales each output's weights to one norm, :math:`w_o \leftarrow n\,w_o/\|w_o\|_p`, in place.

    The norm is over all dimensions but the first, unless ``dim`` names others. A row of zeros stays
    unchanged, and so does one whose norm is too small for its precision. It is the multiplicative
    constraint of Miller & MacKay (1994), doi:10.1162/neco.1994.6.1.100.
    """
    check_tensors(param=param)
    if not param.is_floating_point():
        raise TypeError(
            "Argument `param` should be a floating-point tensor."
            f" Found `param.dtype = {param.dtype}`."
        )
    check_numbers(norm=norm, order=order)
    check_value(0 < norm < math.inf, "norm", norm, "a positive number")
    check_value(order > 0, "order", order, "a positive number")
    dims = range(1, param.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    if not dims:
        raise ValueError(
            "Argument `dim` should name at least one dimension of a parameter that has no"
            f" incoming one. Found `dim = {dim}`, `param.shape = {tuple(param.shape)}`: leave out"
            " what is not a weight, such as a bias, by naming the parameters of a constraint,"
            ' `register_constraint(fn, "weight")`.'
        )
    fits = all(isinstance(d, int) and -param.ndim <= d < param.ndim for d in dims)
    check_value(fits, "dim", dim, f"dimensions of a parameter that has {param.ndim}")
    wide = widened(param)
    total = torch.linalg.vector_norm(wide, order, tuple(dims), keepdim=True)
    return param.copy_(_scaled(wide, total, norm))


@torch.no_grad()
def normalize_synapses_(
    param: Tensor, outputs: Tensor, count: int, norm: float = 1.0, order: float = 1.0
) -> Tensor:
    r"""Scales each output's weights to one norm, as :func:`normalize_`, if they are a vector."""
    # Of the weights `[synapses]`, `outputs` are the outputs, of which there are `count`.
    wide = widened(param)
    size, places = wide.abs(), outputs.long()
    largest = wide.new_zeros(count).scatter_reduce_(0, places, size, "amax")
    total = largest
    if not math.isinf(order):  # relative to the largest, so that no power overflows
        share = size / largest.where(largest > 0, 1.0).index_select(0, places)
        total = wide.new_zeros(count).index_add_(0, places, share**order) ** (1 / order) * largest
    return param.copy_(_scaled(wide, total.index_select(0, places), norm))


def _scaled(wide: Tensor, total: Tensor, norm: float) -> Tensor:
    """Returns weights of norms ``total`` with another norm."""
    # A row without a norm is divided and multiplied by the same number. The division comes first,
    # so that no quotient overflows, however small the row and however large the norm.
    return wide / total.where(total > torch.finfo(wide.dtype).tiny, norm) * norm
