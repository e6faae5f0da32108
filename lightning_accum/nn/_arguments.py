"""Checks of the arguments of neurons and connections."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_integers, check_numbers, check_tensors
from lightning_accum.nn.inhibition import Inhibition

# Steps are counted in single precision, which leaves room for a sequence as long.
_LONGEST_PERIOD = 1 << 23
_LONGEST_DELAY = 1 << 16


def check_potentials(v_threshold: float, v_reset: float, v_rest: float) -> None:
    """Raises an error unless the threshold lies above the reset and the resting potential."""
    check_finite(v_threshold=v_threshold, v_reset=v_reset, v_rest=v_rest)
    if not max(v_reset, v_rest) < v_threshold:
        raise ValueError(
            "Argument `v_threshold` should lie above `v_reset` and `v_rest`. Found "
            f"`v_threshold = {v_threshold}`, `v_reset = {v_reset}`, `v_rest = {v_rest}`."
        )


def check_times(refractory: float, dt: float, time_dim: object) -> None:
    """Raises an error unless the refractory period, the step and the time dimension are valid."""
    check_finite(refractory=refractory, dt=dt)
    if not dt > 0:
        raise ValueError(
            f"Argument `dt` should be a positive step length in ms. Found `dt = {dt}`."
        )
    if not 0 <= refractory <= _LONGEST_PERIOD * dt:
        raise ValueError(
            "Argument `refractory` should be a non-negative period in ms, of at most"
            f" {_LONGEST_PERIOD} steps. Found `refractory = {refractory}`, `dt = {dt}`."
        )
    if time_dim is not None and not (isinstance(time_dim, int) and time_dim == 0):
        raise ValueError(
            "Argument `time_dim` should be `None` (one step per call) or 0 (a sequence, time "
            f"first). Found `time_dim = {time_dim}`. Transpose the input."
        )


def check_options(
    spike_dtype: torch.dtype | None, inhibition: Inhibition | None, compile: bool
) -> None:
    """Raises an error unless dtype, inhibition and compilation are valid and fit together."""
    if spike_dtype is not None and not isinstance(spike_dtype, torch.dtype):
        raise TypeError(
            f"Argument `spike_dtype` should be a torch.dtype, or None. Found `{spike_dtype = }`."
        )
    usable = callable(getattr(inhibition, "select", None)) and not isinstance(inhibition, type)
    if not (inhibition is None or usable):
        raise TypeError(
            "Argument `inhibition` should be an inhibition, such as"
            f" `WinnerTakeAll(steps=0)`, or None. Found `{inhibition!r}`."
        )
    if compile and inhibition is not None:
        raise ValueError(
            "Argument `compile` should be False if there is `inhibition`, which is not "
            f"compiled. Found `compile = {compile}`, `inhibition = {inhibition}`."
        )


def check_input(
    x: Tensor, size: tuple[int, ...], time_dim: int | None, least_steps: int = 0
) -> None:
    """Raises an error unless an input current has the shape of a layer.

    Args:
        x: the input.
        size: shape of the layer, without batch and time.
        time_dim: ``None`` for ``[B, *size]``, 0 for ``[T, B, *size]``.
        least_steps: the smallest T that the layer takes.
    """
    check_tensors(x=x)
    lead = ["B"] if time_dim is None else ["T", "B"]
    fits = x.ndim == len(lead) + len(size) and x.shape[len(lead) :] == size
    if not fits or (time_dim is not None and len(x) < least_steps):
        raise ValueError(
            f"Argument `x` should have shape [{', '.join([*lead, *map(str, size)])}], as"
            f" `time_dim = {time_dim}`. Found shape {list(x.shape)}."
        )


def decay_in_step(name: str, tc: float, dt: float) -> float:
    """Returns the factor of an exponential decay in a step, after a check of its time constant."""
    check_numbers(**{name: tc})
    if not tc > 0:
        raise ValueError(
            f"Argument `{name}` should be a positive time constant in ms. Found `{name} = {tc}`."
        )
    return math.exp(-dt / tc)


def layer_shape(size: int | Sequence[int]) -> tuple[int, ...]:
    """Returns the size of a layer as a shape, after a check."""
    try:
        sizes = (size,) if isinstance(size, int) else tuple(size)
    except TypeError:
        sizes = ()
    if not sizes or not all(isinstance(n, int) and 0 <= n < 2**63 for n in sizes):
        found = repr(size) if isinstance(size, (int, float, str, tuple, list)) else type(size)
        raise ValueError(
            "Argument `size` should be a number of neurons, or the shape of a layer. Found"
            f" `size = {found}`."
        )
    return sizes


def check_sizes(**sizes: int) -> None:
    """Raises an error unless arguments, passed by their names, are sizes of a layer."""
    check_integers(**sizes)
    for name, size in sizes.items():
        if size < 0:
            raise ValueError(f"Argument `{name}` should be a size. Found `{name} = {size}`.")


def delays_of(weight: Tensor, delay: float | Tensor | None, max_delay: float, dt: float) -> Tensor:
    """Returns delays for each of a connection's weights, after a check.

    Args:
        weight: the weights.
        delay: the delays in ms, or ``None`` to draw them.
        max_delay: the longest delay, in ms.
        dt: step, in ms.
    """
    check_finite(max_delay=max_delay)
    if not 0 <= max_delay <= _LONGEST_DELAY * dt:
        raise ValueError(
            f"Argument `max_delay` should be from 0 to {_LONGEST_DELAY} steps, in ms. Found"
            f" `max_delay = {max_delay}`, `dt = {dt}`."
        )
    if max_delay and not round(max_delay / dt):
        raise ValueError(
            "Argument `max_delay` should be 0, or more than half a step, in ms. Found"
            f" `max_delay = {max_delay}`, `dt = {dt}`, so that every delay is rounded to 0: give it"
            " in ms, not in seconds, or shorten `dt`."
        )
    if delay is None:
        return max_delay * torch.rand_like(weight)
    if not isinstance(delay, Tensor):
        check_finite(delay=delay)
        delay = torch.tensor(delay, device=weight.device).expand_as(weight)
    if delay.shape != weight.shape or not ((delay >= 0) & (delay <= max_delay)).all():
        raise ValueError(
            f"Argument `delay` should be a number or a tensor of shape {list(weight.shape)}, from 0"
            f" to `max_delay = {max_delay}`, in ms. Found shape {list(delay.shape)}, with"
            f" {delay.flatten()[:4].tolist()}."
        )
    return delay.detach().to(weight, copy=True)
