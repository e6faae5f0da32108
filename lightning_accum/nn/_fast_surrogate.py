"""The fast loop of neurons with a surrogate gradient; their ``_step`` is its plain form."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.sparse.kernel_library import has_kernel
from lightning_accum.sparse.neurons import integrate_surrogate_neurons

# From so many steps on, the kernel is worth its preparation, such as a copy of the weights.
_LONG = 8


class SurrogateState(NamedTuple):
    """The state of a layer between two steps, each ``[B, N]``."""

    v: Tensor
    adaptation: Tensor  # low-pass of the neuron's own spikes
    spikes: Tensor  # of the last step


class SurrogateRun(NamedTuple):
    """A sequence of a layer, each ``[T, B, N]``."""

    raster: Tensor  # spikes, 0 or 1, [T + 1, B, N]: those before the first step come first
    membrane: Tensor  # potential that is compared with the threshold
    threshold: Tensor
    state: SurrogateState  # after the last step


def integrate_surrogate(
    current: Tensor,
    state: SurrogateState,
    decay: float,
    v_threshold: float,
    beta: float,
    decay_adaptation: float,
    recurrent: Tensor | None = None,
    spike_dtype: torch.dtype | None = None,
) -> SurrogateRun:
    """Integrates ``[T, B, N]`` currents without a graph, each step in the memory of its result."""
    # `state` is overwritten; spikes may be in `spike_dtype` instead of the dtype of `current`.
    v, adaptation, z = state
    current = current.contiguous()
    membrane = torch.empty_like(current)
    base = current.new_full((), v_threshold)
    threshold = torch.empty_like(current) if beta else base.expand(current.shape)
    shape = (len(current) + 1, *current.shape[1:])
    if len(current) >= _LONG and has_kernel(current.device, current.dtype):
        raster = current.new_empty(shape, dtype=torch.bool if spike_dtype is torch.bool else None)
        raster[0] = z
        weights = None if recurrent is None else recurrent.detach().t().to(current).contiguous()
        constants = decay, v_threshold, beta, decay_adaptation
        limits = threshold if beta else None
        if integrate_surrogate_neurons(
            current, weights, state, membrane, limits, raster, constants
        ):
            return SurrogateRun(raster, membrane, threshold, state)
    raster = current.new_empty(shape)
    raster[0] = z
    spikes = raster[1:]
    incoming = None if recurrent is None else recurrent.t().to(current)
    rows = (current.unbind(0), membrane.unbind(0), spikes.unbind(0), threshold.unbind(0))
    for now, potential, out, limit in zip(*rows, strict=True):
        torch.add(now, v, alpha=decay, out=potential)
        potential.sub_(z, alpha=v_threshold)
        if incoming is not None:
            potential.addmm_(z, incoming)
        if beta:
            torch.add(base, adaptation, alpha=beta, out=limit)
            torch.ge(potential, limit, out=out)
            adaptation.mul_(decay_adaptation).add_(out)
        else:
            torch.ge(potential, base, out=out)
        v, z = potential, out
    return SurrogateRun(
        raster, membrane, threshold, SurrogateState(v.clone(), adaptation, z.clone())
    )
