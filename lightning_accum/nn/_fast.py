"""The fast loops over a sequence of neurons; each neuron's ``_step`` is their plain form.

Masks are floating-point and buffers are written in place, which is faster than ``torch.where``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from lightning_accum.nn._fast_compiled import integrate_blocks
from lightning_accum.nn.inhibition import Inhibition
from lightning_accum.nn.state import NeuronState
from lightning_accum.sparse.kernel_neurons import NeuronSteps, integrate_neurons
from lightning_accum.sparse.kernel_online import SpikingNeurons

# Sequences of up to so many steps are not worth the preparation of the loop for long sequences.
_SHORT = 3
# How many steps' spikes are cast to another dtype together.
_CAST_TOGETHER = 16


def integrate(
    constants: SpikingNeurons,
    inhibition: Inhibition | None,
    current: Tensor,
    state: NeuronState,
    spike_dtype: torch.dtype,
    compile: bool,
) -> tuple[Tensor, NeuronState]:
    """Integrates a sequence.

    Args:
        constants: the constants of the equations.
        inhibition: lateral inhibition.
        current: input current, ``[T, B, N]``.
        state: the state before the first step, which is changed in place.
        spike_dtype: dtype of the spikes.
        compile: whether to use compiled code, if there is no inhibition.

    Returns:
        The spikes ``[T, B, N]``, and the state after the last step.

    Raises:
        RuntimeError: if there is no compiler for ``compile=True``.
    """
    r, (v, hold, theta) = constants, state
    out = torch.empty(current.shape, dtype=spike_dtype, device=current.device)
    if not compile and inhibition is None and _by_kernel(r, current, out, state):
        return out, state
    if r.rest:
        current = current + (1 - r.decay) * r.rest
    threshold = theta.to(v) + r.threshold
    adaptation = None
    if r.adapts and len(v):  # no samples have no mean
        adaptation = _Adaptation(r, theta, threshold, len(v))
    spikes = out
    if compile and inhibition is None:
        done = integrate_blocks(
            current,
            out,
            v,
            hold if r.period else None,
            threshold,
            None if adaptation is None else theta,
            (r.decay, float(r.period), r.decay_theta, r.theta_plus, r.threshold),
        )
        current, spikes = current[done:], out[done:]
    if r.period and inhibition is None and len(current) > _SHORT:
        hold = _loop_long(r, current, spikes, v, hold, threshold, adaptation)
    else:
        _loop(r, inhibition, current, spikes, v, hold, threshold, adaptation)
    return out, NeuronState(v, hold, theta)


def prepare_steps(
    steps: NeuronSteps,
    constants: SpikingNeurons,
    state: NeuronState,
    spike_dtype: torch.dtype,
    settings: object,
) -> None:
    """Prepares single steps, each a call, of neurons whose threshold does not adapt.

    Args:
        steps: takes them.
        constants: the constants of the equations.
        state: the state after the last step.
        spike_dtype: dtype of the spikes.
        settings: what has to be equal in the next steps.
    """
    steps.begin(state.v, state.hold, _numbers(constants), constants.period, spike_dtype, settings)


def _by_kernel(r: SpikingNeurons, current: Tensor, out: Tensor, state: NeuronState) -> bool:
    """Integrates with the compiled kernel; returns whether there is one for these neurons."""
    hold, theta = state.hold if r.period else None, state.theta if state.theta.ndim else None
    return integrate_neurons(current, out, state.v, hold, theta, _numbers(r), r.period)


def _numbers(r: SpikingNeurons) -> tuple[float, float, float, float, float]:
    """Returns the constants as the kernel takes them."""
    return r.decay, (1 - r.decay) * r.rest, r.threshold, r.decay_theta, r.theta_plus


def _loop(
    r: SpikingNeurons,
    inhibition: Inhibition | None,
    current: Tensor,
    out: Tensor,
    v: Tensor,
    hold: Tensor,
    threshold: Tensor,
    adaptation: _Adaptation | None,
) -> None:
    """Integrates any neurons, and changes ``v``, ``hold`` and ``threshold`` in place."""
    holds = r.period > 0 or inhibition is not None
    work = torch.empty_like(v) if holds else v
    for spikes, i in zip(_rows(out, v.dtype), current.unbind(0), strict=True):
        torch.add(i, v, alpha=r.decay, out=v)
        if holds:
            v.mul_(torch.le(hold, 0, out=work))
            hold.sub_(1)
        torch.ge(v, threshold, out=spikes)
        if inhibition is not None:
            inhibition.select(torch.sub(v, threshold, out=work), spikes)
        v.addcmul_(v, spikes, value=-1)
        if r.period:
            torch.maximum(hold, torch.mul(spikes, float(r.period), out=work), out=hold)
        if inhibition is not None:
            inhibition.suppress(spikes, v, hold)
        if adaptation is not None:
            adaptation.rise(spikes)


def _loop_long(
    r: SpikingNeurons,
    current: Tensor,
    out: Tensor,
    v: Tensor,
    hold: Tensor,
    threshold: Tensor,
    adaptation: _Adaptation | None,
) -> Tensor:
    """Integrates a long sequence with a refractory period, and returns the new ``hold``.

    It stores the step until which a neuron is held, instead of counting down; and a neuron that
    spikes needs no reset, as it is held at reset in the next step.
    """
    steps = len(current)
    until, free = hold - 1, torch.empty_like(v)
    ends = torch.arange(r.period, r.period + steps, dtype=v.dtype, device=v.device).unbind(0)
    rows = _rows(out, v.dtype)
    for t, (spikes, i) in enumerate(zip(rows, current.unbind(0), strict=True)):
        torch.add(i, v, alpha=r.decay, out=v)
        v.mul_(torch.le(until, t - 1, out=free))
        torch.ge(v, threshold, out=spikes)
        torch.lerp(until, ends[t], spikes, out=until)
        if adaptation is not None:
            adaptation.rise(spikes)
    v.addcmul_(v, spikes, value=-1)
    return until.sub_(steps - 1).clamp_(min=0)


class _Adaptation:
    """Raises the threshold with the spikes of a step, in place."""

    def __init__(self, r: SpikingNeurons, theta: Tensor, threshold: Tensor, batch: int) -> None:
        self.r = r
        self.theta = theta
        self.threshold = threshold
        self.shares = threshold.new_full((batch,), r.theta_plus / batch)

    def rise(self, spikes: Tensor) -> None:
        r, theta = self.r, self.theta
        if theta.dtype == spikes.dtype:
            theta.addmv_(spikes.T, self.shares, beta=r.decay_theta)
        else:
            theta.mul_(r.decay_theta).add_(spikes.mean(0), alpha=r.theta_plus)
        torch.add(theta, r.threshold, out=self.threshold)


def _rows(out: Tensor, dtype: torch.dtype) -> Iterable[Tensor]:
    """Returns a tensor of ``dtype`` for the spikes of each step, in ``out`` or to be cast to it.

    The last tensor keeps its values after the end.
    """
    return out.unbind(0) if out.dtype == dtype else _cast_rows(out, dtype)


def _cast_rows(out: Tensor, dtype: torch.dtype) -> Iterator[Tensor]:
    parts = out.split(_CAST_TOGETHER) if len(out) > _CAST_TOGETHER else (out,)
    buffer = torch.empty_like(parts[0], dtype=dtype)
    rows = buffer.unbind(0)
    for part in parts:
        yield from rows[: len(part)]
        part.copy_(buffer if len(part) == len(rows) else buffer[: len(part)])
