"""The compiled loop that simulates a layer and learns by pair STDP after each step.

The plain form is :func:`lightning_accum.rules.online.learn_online`, step by step.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.sparse.compiled import At, Int, Real, kernel_for, pointer

# Postsynaptic spikes that may wait until the weights of an input are read.
_ROOM = 1 << 16


class PairSTDP(NamedTuple):
    """The constants of pair-based STDP, for one step and the whole batch.

    Args:
        rate_post: factor of the presynaptic traces on a postsynaptic spike.
        rate_pre: factor of the postsynaptic traces on a presynaptic spike.
        decay_pre: factor by which presynaptic traces shrink in a step.
        decay_post: factor by which postsynaptic traces shrink in a step.
        nearest: whether a spike sets its trace to one, instead of adding one.
    """

    rate_post: float
    rate_pre: float
    decay_pre: float
    decay_post: float
    nearest: bool


class SpikingNeurons(NamedTuple):
    """The constants of integrate-and-fire neurons; potentials are relative to reset.

    Args:
        decay: factor by which the distance of a membrane potential to rest shrinks in a step.
        rest: resting potential.
        threshold: threshold without its adaptation.
        period: refractory period, in steps.
        decay_theta: factor by which the rise of the threshold shrinks in a step.
        theta_plus: rise of the threshold if all samples of the batch spike.
        losers: steps for which a spike silences all other neurons; ``None`` for no competition.
    """

    decay: float
    rest: float
    threshold: float
    period: int
    decay_theta: float = 1.0
    theta_plus: float = 0.0
    losers: int | None = None

    @property
    def adapts(self) -> bool:
        """Whether the threshold changes."""
        return self.theta_plus != 0.0 or self.decay_theta != 1.0


class OnlineState(NamedTuple):
    """What passes from one sequence to the next.

    Args:
        v: membrane potentials, ``[B, N]``.
        hold: steps for which neurons are still held at reset, ``[B, N]``.
        theta: the rise of the threshold, ``[N]``.
        pre: presynaptic traces, ``[B, E]``.
        post: postsynaptic traces, ``[B, N]``.
    """

    v: Tensor
    hold: Tensor
    theta: Tensor
    pre: Tensor
    post: Tensor


def run_online(
    raster: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    neurons: SpikingNeurons,
    rule: PairSTDP,
    state: OnlineState,
    limits: tuple[float, float] | None = None,
) -> tuple[Tensor, Tensor, OnlineState] | None:
    """Simulates and learns; changes none of its arguments.

    Args:
        raster: input spikes as booleans, ``[T, B, E]``, on the CPU.
        weight: ``[N, E]``.
        bias: ``[N]``, or ``None``.
        neurons: the constants of the neurons.
        rule: the constants of the rule.
        state: the state before the first step.
        limits: the lowest and the highest weight, between which all weights are.

    Returns:
        The spikes as booleans ``[T, B, N]``, the new weight as ``[E, N]``, and the state after the
        last step; ``None`` if there is no kernel for these arguments.
    """
    steps, batch, inputs = raster.shape
    size, dtype = len(weight), weight.dtype
    most = max(steps * batch * max(inputs, size), inputs * size)
    kernel = kernel_for(dtype)
    if kernel is None or not 0 < most < 2**31:
        return None
    room = max(_ROOM, batch * size)
    transposed = weight.detach().t().clone(memory_format=torch.contiguous_format)
    v, hold, theta, pre, post = (
        _copy(value, shape, dtype)
        for value, shape in zip(
            (state.v, state.hold, state.theta, state.pre.t(), state.post),
            ((batch, size), (batch, size), (size,), (inputs, batch), (batch, size)),
            strict=True,
        )
    )
    powers = (rule.decay_pre ** torch.arange(steps + 1, dtype=torch.float64)).to(dtype)
    spikes = torch.empty(steps, batch, size, dtype=torch.bool)
    low, high = limits or (0.0, 0.0)
    tensors = {
        "raster": _copy(raster, (steps, batch, inputs), torch.bool),
        "spikes": spikes,
        "weight": transposed,
        "bias": None if bias is None else _copy(bias.detach(), (size,), dtype),
        **{"v": v, "hold": hold, "theta": theta, "pre": pre, "post": post, "powers": powers},
        "current": torch.empty(size, dtype=dtype),
        "last": torch.empty(inputs, dtype=torch.int32),
        **{name: torch.empty(room, dtype=torch.int32) for name in ("samples", "columns", "times")},
        "starts": torch.empty(steps + 1, dtype=torch.int32),
        "ins": torch.empty(batch * inputs, dtype=torch.int32),
        "read": torch.empty(inputs, dtype=torch.bool),
    }
    task = _Online(
        **{"steps": steps, "batch": batch, "inputs": inputs, "neurons": size, "room": room},
        **{name: pointer(each) for name, each in tensors.items()},
        drive=(1 - neurons.decay) * neurons.rest,
        **{name: getattr(neurons, name) for name in _OF_NEURONS},
        **{name: getattr(rule, name) for name in _OF_RULE},
        low=low,
        high=high,
        bounded=limits is not None,
        losers=-1 if neurons.losers is None else neurons.losers,
    )
    kernel.run_online(ctypes.byref(task))
    hold.clamp_(min=0)
    after = OnlineState(v, hold, theta, pre.t().contiguous(), post)
    return spikes, transposed, after


_OF_NEURONS = ("decay", "threshold", "period", "decay_theta", "theta_plus")
_OF_RULE = ("rate_post", "rate_pre", "decay_post", "nearest")


class _Online(ctypes.Structure):
    """The arguments of the C function, in its order."""

    _fields_ = (
        *((n, Int) for n in ("steps", "batch", "inputs", "neurons", "room")),
        *((n, At) for n in ("raster", "spikes", "weight", "bias", "v", "hold")),
        *((n, At) for n in ("theta", "pre", "post", "powers", "current", "last")),
        *((n, At) for n in ("samples", "columns", "times", "starts", "ins", "read")),
        *((n, Real) for n in ("decay", "drive", "threshold", "period", "decay_theta")),
        *((n, Real) for n in ("theta_plus", "decay_post", "rate_post", "rate_pre")),
        *((n, Real) for n in ("low", "high")),
        *((n, ctypes.c_int32) for n in ("nearest", "bounded", "losers")),
    )


def _copy(value: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Returns a contiguous copy on the CPU, whose shape is checked before C reads it."""
    if value.shape != shape:
        raise ValueError(
            f"Argument of the compiled loop should have shape {shape}. Found {tuple(value.shape)}."
        )
    return value.detach().to("cpu", dtype, copy=True).contiguous()
