"""Exponential traces of spikes that are known by their indices."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.functional.traces import TraceMode, decays_to_the_end
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_search import last_trace


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
    steps, state = shape[0], shape[1:]
    left = decays_to_the_end(decay, steps, events.rows.device)
    before = torch.zeros(state, dtype=dtype, device=left.device)
    if initial is not None:
        before += initial * decay**steps
    rows = before.view(state[:-1].numel(), state[-1])
    found = last_trace(events.rows, events.columns, left, mode == "nearest", rows)
    if found is not None:
        return found.view(state)
    step, place = _steps_and_places(events, shape)
    if mode == "cumulative":
        return before.add_(torch.bincount(place, left[step], state.numel()).view(state))
    latest = step.new_full((state.numel(),), -1).scatter_reduce_(0, place, step, "amax").view(state)
    x = decay ** (steps - 1 - latest).double()
    return torch.where(latest < 0, before, x.to(dtype))


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
