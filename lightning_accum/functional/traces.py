"""Exponential traces of activity, forwards and backwards in time."""

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_accum._checks import (
    check_finite,
    check_numbers,
    check_positive,
    check_tensors,
    check_value,
)
from lightning_accum.functional.dtypes import as_bytes, as_numbers

TraceMode = Literal["cumulative", "nearest"]
_MODES = get_args(TraceMode)

# Elements of activity that are converted at a time.
_PIECE = 1 << 18


def decay_factor(tc: float, dt: float = 1.0, name: str = "tc") -> float:
    r"""Returns the factor of an exponential decay over one step, :math:`a = e^{-\Delta t / \tau}`.

    Args:
        tc: time constant :math:`\tau`, in ms.
        dt: step :math:`\Delta t`, in ms.
        name: what an error calls the time constant.

    Raises:
        ValueError: if one of them is not positive.

    Example:
        >>> round(decay_factor(20.0), 4)
        0.9512
    """
    if isinstance(tc, Tensor):  # of a rule that is differentiated
        return torch.exp(-dt / tc)
    check_numbers(**{name: tc})
    check_value(tc > 0, name, tc, "a positive time constant in ms")
    check_positive("a positive step in ms", dt=dt)
    return math.exp(-dt / tc)


def trace(
    activity: Tensor,
    decay: float,
    mode: TraceMode = "cumulative",
    initial: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
) -> Tensor:
    r"""Computes the exponential trace of activity, which includes the spikes of the same step.

    .. math::
        \text{cumulative:}\quad x_t = a\,x_{t-1} + s_t \qquad
        \text{nearest:}\quad x_t = \begin{cases} s_t & s_t \ne 0 \\ a\,x_{t-1} & s_t = 0\end{cases}

    Args:
        activity: ``[T, ...]`` spikes or values :math:`s_t`, of any dtype.
        decay: :math:`a`, the factor of the decay over one step.
        mode: whether the trace sums all earlier spikes, or follows only the latest.
        initial: ``[...]`` the trace before the first step; zero when ``None``.
        dtype: the dtype of the trace, unless that of ``activity`` is wider.
        out: ``[T, ...]`` the tensor to write to; a new one when ``None``.

    Returns:
        ``[T, ...]`` the trace after each step.

    Example:
        >>> import torch
        >>> trace(torch.tensor([1.0, 0.0, 1.0]), 0.5)
        tensor([1.0000, 0.5000, 1.2500])
        >>> trace(torch.tensor([1.0, 0.0, 1.0]), 0.5, "nearest")
        tensor([1.0000, 0.5000, 1.0000])

    Source:
        Morrison, Diesmann & Gerstner 2008, "Phenomenological models of synaptic plasticity based
        on spike timing", doi:10.1007/s00422-008-0233-1.
    """
    if mode not in _MODES:
        raise ValueError(f"Argument `mode` should be one of {_MODES}. Found `mode = {mode!r}`.")
    _check("activity", activity, decay, initial)
    dtype = torch.promote_types(activity.dtype, dtype)
    if activity.shape[0] == 1 and mode == "cumulative" and initial is not None and out is None:
        return torch.add(as_bytes(activity), initial, alpha=decay).to(dtype)
    out = _copied(activity, dtype, out)
    before = initial
    # In place: each step reads the one before, and no memory is needed but that of the trace.
    for now in out.unbind(0):
        if before is not None:
            kept = before if mode == "cumulative" else (now == 0) * before
            now.add_(kept, alpha=decay)
        before = now
    return out


def reverse_trace(
    values: Tensor, decay: float, out: Tensor | None = None, behind: Tensor | None = None
) -> Tensor:
    r"""Computes the adjoint of the cumulative trace, :math:`R_t = s_t + a\,R_{t+1}`.

    It moves a trace to the other side of a product, so that traces are needed only on the smaller
    side: :math:`\sum_t y_t \otimes x_t = \sum_u R_u \otimes s_u` with :math:`x` the cumulative
    trace of :math:`s` and :math:`R` the reverse trace of :math:`y`. The arguments are those of
    :func:`trace`, and ``behind``, ``[...]``, what the steps behind these add to the last one,
    :math:`a\,R_T`; zero when ``None``.

    Returns:
        ``[T, ...]`` in float32 at least.

    Example:
        >>> import torch
        >>> reverse_trace(torch.tensor([1.0, 0.0, 1.0]), 0.5)
        tensor([1.2500, 0.5000, 1.0000])
    """
    _check("values", values, decay)
    if behind is not None:
        check_tensors(behind=behind)
    out = _copied(values, torch.promote_types(values.dtype, torch.float32), out)
    steps = out.unbind(0)
    if behind is not None and steps:
        steps[-1].add_(behind)
    for t in range(len(steps) - 2, -1, -1):
        steps[t].add_(steps[t + 1], alpha=decay)
    return out


def last_trace(
    activity: Tensor,
    decay: float,
    mode: TraceMode = "cumulative",
    initial: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Computes only the last step of a :func:`trace`, in the memory of one step."""
    _check("activity", activity, decay, initial)
    dtype = torch.promote_types(activity.dtype, dtype)
    x = torch.zeros(activity.shape[1:], dtype=dtype, device=activity.device)
    if initial is not None:
        x.copy_(initial)
    if mode == "nearest":
        for step in activity.unbind(0):
            x.masked_fill_(step != 0, 0)
            x.mul_(decay).add_(step)
        return x
    steps = activity.shape[0]
    left = decays_to_the_end(decay, steps + 1, activity.device).to(dtype)
    x.mul_(left[0])
    # Pieces of the converted activity stay in the cache.
    length, rows = max(1, _PIECE // max(1, x.numel())), activity.reshape(steps, x.numel())
    for at in range(0, steps, length):
        numbers = as_numbers(rows[at : at + length], dtype)
        x.view(-1).addmv_(numbers.T, left[1 + at : 1 + at + length])
    return x


def decays_to_the_end(decay: float, steps: int, device: torch.device) -> Tensor:
    """Returns the factors of the decay from each step to the last, ``[T]`` in float64."""
    return decay ** torch.arange(steps - 1, -1, -1, dtype=torch.float64, device=device)


def _copied(values: Tensor, dtype: torch.dtype, out: Tensor | None) -> Tensor:
    """Returns the values in a dtype, copied to ``out`` or to a new tensor."""
    values = as_bytes(values)
    if out is None:
        return values.to(dtype, copy=True, memory_format=torch.contiguous_format)
    if not isinstance(out, Tensor):
        check_tensors(out=out)
    if out.shape != values.shape or torch.promote_types(out.dtype, dtype) != out.dtype:
        raise ValueError(
            f"Argument `out` should have shape {list(values.shape)} and hold {dtype}. Found shape"
            f" {list(out.shape)} of {out.dtype}."
        )
    return out.copy_(values)


def _check(name: str, values: Tensor, decay: float, initial: Tensor | None = None) -> None:
    """Checks the arguments of a trace."""
    if not isinstance(values, Tensor):
        check_tensors(**{name: values})
    if values.ndim == 0:
        raise ValueError(f"Argument `{name}` should be `[T, ...]`. Found no dimension.")
    if type(decay) is not float or not math.isfinite(decay):
        check_finite(decay=decay)
    if initial is not None:
        if not isinstance(initial, Tensor):
            check_tensors(initial=initial)
        if initial.is_complex() and not values.is_complex():
            raise TypeError(
                f"Argument `initial` should be real, as `{name}`. Found `{initial.dtype = }`."
            )
