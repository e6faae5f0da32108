"""Checks of the arguments and states of neurons and connections."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum._checks import (
    check_finite,
    check_integers,
    check_positive,
    check_shape,
    check_tensors,
    check_time_dim,
    check_type,
    check_value,
)

# Steps are counted in single precision, which leaves room for a sequence as long.
LONGEST = 1 << 23


def check_times(refractory: float, dt: float, time_dim: object) -> None:
    """Raises an error unless the refractory period, the step and the time dimension are valid."""
    check_finite(refractory=refractory)
    check_positive("a positive step in ms", dt=dt)
    should = f"a non-negative period in ms, of at most {LONGEST} steps of {dt}"
    check_value(0 <= refractory <= LONGEST * dt, "refractory", refractory, should)
    check_time_dim(time_dim)


def check_spike_dtype(spike_dtype: torch.dtype | None) -> None:
    """Raises a ``TypeError`` unless this is a dtype, or ``None``."""
    fits = spike_dtype is None or isinstance(spike_dtype, torch.dtype)
    check_type(fits, "spike_dtype", spike_dtype, "a torch.dtype, or None")


def check_sizes(**sizes: int) -> None:
    """Raises an error unless arguments, passed by their names, are sizes of a layer."""
    check_integers(**sizes)
    for name, size in sizes.items():
        check_value(size >= 0, name, size, "a size")


def steps_of(
    x: Tensor, size: tuple[int, ...], time_dim: int | None, least_steps: int = 0
) -> Tensor:
    """Returns an input ``[B, *size]``, or ``[T, B, *size]``, with time; or raises an error."""
    check_tensors(x=x)
    lead = ["B"] if time_dim is None else ["T", "B"]
    fits = x.ndim == len(lead) + len(size) and x.shape[len(lead) :] == size
    fits = fits and (time_dim is None or len(x) >= least_steps)
    should = f"shape [{', '.join([*lead, *map(str, size)])}], as `time_dim = {time_dim}`"
    check_shape(fits, "x", x, should)
    return x.unsqueeze(0) if time_dim is None else x


def layer_shape(size: int | Sequence[int]) -> tuple[int, ...]:
    """Returns the size of a layer as a shape, after a check."""
    try:
        sizes = (size,) if isinstance(size, int) else tuple(size)
    except TypeError:
        sizes = ()
    fits = len(sizes) > 0 and all(isinstance(n, int) and 0 <= n < 2**63 for n in sizes)
    check_value(fits, "size", size, "a number of neurons, or the shape of a layer")
    return sizes
