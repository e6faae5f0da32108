"""Exponential traces of spikes that are known by their indices."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.functional.traces import TraceMode, decays_to_the_end
from lightning_accum.sparse.events import Events


def last_trace_of_events(
    events: Events,
    shape: torch.Size,
    decay: float,
    mode: TraceMode,
    initial: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Returns the last step of an exponential trace of spikes; visits only events.

    The plain form is :func:`lightning_accum.functional.traces.last_trace`.

    Args:
        events: the events of the activity as ``[K, neurons]``.
        shape: the shape of the activity, ``[T, ..., neurons]``.
        decay: the share that is left after one step.
        mode: the mode of the trace.
        initial: ``[..., neurons]`` the trace before the first step.
        dtype: the dtype of the trace.

    Returns:
        ``[..., neurons]``.
    """
    step, place = _steps_and_places(events, shape)
    steps, size = shape[0], shape[1:].numel()
    if mode == "cumulative":
        left = decays_to_the_end(decay, steps, place.device)[step]
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
    """Returns the nearest trace just before each spike.

    Args:
        events: the events of the activity as ``[K, neurons]``.
        shape: the shape of the activity, ``[T, ..., neurons]``.
        decay: the share that is left after one step.
        initial: ``[..., neurons]`` the trace before the first step.
        dtype: the dtype of the result.

    Returns:
        ``[events]`` in the order of rows.
    """
    step, place = _steps_and_places(events, shape)
    place, order = torch.sort(place, stable=True)  # those of one place stay in the order of time
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
    """Returns the step of each event, and its place among the neurons of all samples."""
    neurons, size = shape[-1], shape[1:].numel()
    rows = max(1, size // max(1, neurons))
    step = torch.div(events.rows, rows, rounding_mode="floor").long()
    return step, (events.rows - step * rows) * neurons + events.columns
