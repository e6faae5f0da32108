"""Exponential traces of activity, forwards and backwards in time."""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_numbers, check_tensors
from lightning_accum.functional.events import Events
from lightning_accum.functional.numbers import as_bytes, as_numbers

TraceMode = Literal["cumulative", "nearest"]

# Elements of activity that are converted at a time.
_PIECE = 1 << 18


def decay_factor(tc: float, dt: float = 1.0) -> float:
    r"""What an exponential decay leaves after one step, :math:`a = e^{-\Delta t / \tau}`.

    Args:
        tc: time constant :math:`\tau`, in ms.
        dt: step :math:`\Delta t`, in ms.

    Raises:
        ValueError: if one of them is not positive.

    Example:
        >>> round(decay_factor(20.0), 4)
        0.9512
    """
    check_numbers(tc=tc)
    check_finite(dt=dt)
    if not tc > 0:
        raise ValueError(
            f"Argument `tc` should be a positive time constant in ms. Found `{tc = }`."
        )
    if not dt > 0:
        raise ValueError(f"Argument `dt` should be a positive step in ms. Found `{dt = }`.")
    return math.exp(-dt / tc)


def trace(
    activity: Tensor,
    decay: float,
    mode: TraceMode = "cumulative",
    initial: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    out: Tensor | None = None,
) -> Tensor:
    r"""The exponential trace of activity; a spike counts in the step in which it happens.

    .. math::
        \text{cumulative:}\quad x_t = a\,x_{t-1} + s_t \qquad
        \text{nearest:}\quad x_t = \begin{cases} s_t & s_t \ne 0 \\ a\,x_{t-1} & s_t = 0\end{cases}

    Args:
        activity: ``[T, ...]`` spikes or values :math:`s_t`, of any dtype.
        decay: :math:`a`, what is left after one step.
        mode: whether every earlier spike is in the trace, or the latest alone.
        initial: ``[...]`` the trace before the first step; zero when ``None``.
        dtype: of the trace, unless ``activity`` is wider.
        out: ``[T, ...]`` to write to; a new tensor when ``None``.

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
    if mode not in get_args(TraceMode):
        raise ValueError(
            f"Argument `mode` should be one of {get_args(TraceMode)}. Found `mode = {mode!r}`."
        )
    _check("activity", activity, decay, initial)
    dtype = torch.promote_types(activity.dtype, dtype)
    if len(activity) == 1 and mode == "cumulative" and initial is not None and out is None:
        return torch.add(as_bytes(activity), initial, alpha=decay).to(dtype)  # in one go
    out = _copied(activity, dtype, out)
    before = initial
    # In place, front to back: each step reads the one before, and the copy is the only memory.
    for now in out.unbind(0):
        if before is not None:
            if mode == "cumulative":
                now.add_(before, alpha=decay)
            else:
                now.add_((now == 0) * before, alpha=decay)
        before = now
    return out


def reverse_trace(values: Tensor, decay: float, out: Tensor | None = None) -> Tensor:
    r"""The adjoint of the cumulative trace, :math:`R_t = s_t + a\,R_{t+1}`.

    It moves a trace to the other side of a product, so that traces are needed on the smaller side
    alone: :math:`\sum_t y_t \otimes x_t = \sum_u R_u \otimes s_u` with :math:`x` the cumulative
    trace of :math:`s` and :math:`R` the reverse trace of :math:`y`.

    Args:
        values: ``[T, ...]`` spikes or values, of any dtype.
        decay: :math:`a`, what is left after one step.
        out: ``[T, ...]`` to write to; a new tensor when ``None``.

    Returns:
        ``[T, ...]`` in float32 at least.

    Example:
        >>> import torch
        >>> reverse_trace(torch.tensor([1.0, 0.0, 1.0]), 0.5)
        tensor([1.2500, 0.5000, 1.0000])
    """
    _check("values", values, decay)
    out = _copied(values, torch.promote_types(values.dtype, torch.float32), out)
    steps = out.unbind(0)
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
    """The trace after the last step alone, in the memory of one step.

    Args:
        activity: ``[T, ...]`` with at least one step.
        decay: what is left after one step.
        mode: as in :func:`trace`.
        initial: ``[...]`` the trace before the first step.
        dtype: of the trace, unless ``activity`` is wider.

    Returns:
        ``[...]`` equal to ``trace(...)[-1]``.

    Example:
        >>> import torch
        >>> last_trace(torch.tensor([1.0, 0.0, 1.0]), 0.5)
        tensor(1.2500)
    """
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
    left = _what_is_left(decay, len(activity) + 1, activity.device).to(dtype)
    x.mul_(left[0])
    # converted in pieces that stay in cache
    length = max(1, _PIECE // max(1, x.numel()))
    for steps, weights in zip(activity.split(length), left[1:].split(length), strict=True):
        numbers = as_numbers(steps.reshape(len(steps), x.numel()), dtype)
        x.view(-1).addmv_(numbers.T, weights)
    return x


def last_trace_of_events(
    events: Events,
    shape: torch.Size,
    decay: float,
    mode: TraceMode,
    initial: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """As :func:`last_trace` of spikes, at the cost of the events alone.

    Args:
        events: of the activity, as ``[K, neurons]``.
        shape: of the activity, ``[T, ..., neurons]``.
        decay: what is left after one step.
        mode: as in :func:`trace`.
        initial: ``[..., neurons]`` the trace before the first step.
        dtype: of the trace.

    Returns:
        ``[..., neurons]``.
    """
    step, place = _steps_and_places(events, shape)
    steps, size = shape[0], shape[1:].numel()
    if mode == "cumulative":
        left = _what_is_left(decay, steps, place.device)[step]
        x = torch.bincount(place, left, size).view(shape[1:]).to(dtype)
        return x if initial is None else x.add_(initial, alpha=decay**steps)
    latest = step.new_full((size,), -1).scatter_reduce_(0, place, step, "amax")
    x = (decay ** (steps - 1 - latest).double()).masked_fill_(latest < 0, 0).view(shape[1:])
    if initial is not None:
        x = torch.where(latest.view(shape[1:]) < 0, initial * decay**steps, x)
    return x.to(dtype)


def trace_before_events(
    events: Events, shape: torch.Size, decay: float, initial: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """What is left, when each spike comes, of the nearest trace that the one before it left.

    Args:
        events: of the activity, as ``[K, neurons]``.
        shape: of the activity, ``[T, ..., neurons]``.
        decay: what is left after one step.
        initial: ``[..., neurons]`` the trace before the first step.
        dtype: of the result.

    Returns:
        ``[events]`` in the order of rows.
    """
    step, place = _steps_and_places(events, shape)
    place, order = torch.sort(place, stable=True)  # of one place, as they come in time
    step = step[order]
    since, first = torch.ones_like(step), torch.ones_like(step, dtype=torch.bool)
    torch.sub(step[1:], step[:-1], out=since[1:])
    torch.ne(place[1:], place[:-1], out=first[1:])
    left = (decay ** since.to(dtype)).masked_fill_(first, 0)
    if initial is not None:
        begun = initial.reshape(-1)[place].to(dtype) * decay ** (step + 1).to(dtype)
        left = torch.where(first, begun, left)
    return torch.empty_like(left).scatter_(0, order, left)


def _steps_and_places(events: Events, shape: torch.Size) -> tuple[Tensor, Tensor]:
    """The step of each event, and which of the neurons of all samples it is of."""
    neurons, size = shape[-1], shape[1:].numel()
    rows = max(1, size // max(1, neurons))
    step = torch.div(events.rows, rows, rounding_mode="floor").long()
    return step, (events.rows - step * rows) * neurons + events.columns


def _what_is_left(decay: float, steps: int, device: torch.device) -> Tensor:
    """What the last of some steps sees of each, ``[T]`` in float64."""
    ago = torch.arange(steps - 1, -1, -1, dtype=torch.float64, device=device)
    return decay**ago


def _copied(values: Tensor, dtype: torch.dtype, out: Tensor | None) -> Tensor:
    values = as_bytes(values)
    check_tensors(out=values if out is None else out)
    if out is None:
        return values.to(dtype, copy=True, memory_format=torch.contiguous_format)
    if out.shape != values.shape or torch.promote_types(out.dtype, dtype) != out.dtype:
        raise ValueError(
            f"Argument `out` should have shape {list(values.shape)} and hold {dtype}. Found shape"
            f" {list(out.shape)} of {out.dtype}."
        )
    return out.copy_(values)


def _check(name: str, values: Tensor, decay: float, initial: Tensor | None = None) -> None:
    check_tensors(**{name: values})
    if values.ndim == 0:
        raise ValueError(f"Argument `{name}` should be `[T, ...]`. Found no dimension.")
    check_finite(decay=decay)
    if initial is not None:
        check_tensors(initial=initial)
        if initial.is_complex() and not values.is_complex():
            raise TypeError(
                f"Argument `initial` should be real, as `{name}`. Found `{initial.dtype = }`."
            )
