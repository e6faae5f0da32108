"""The fast loops over a sequence of neurons; each neuron's ``_step`` is their plain form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from lightning_accum._compat.torch_internals import is_compiler_failure
from lightning_accum.nn.competition import Inhibition
from lightning_accum.sparse.kernel_library import has_kernel
from lightning_accum.sparse.neurons import NeuronState, SpikingNeurons

# Sequences of up to so many steps are not worth the preparation of the loop for long sequences.
_SHORT = 3
# Steps of a compiled pass: more take longer to compile, and a CPU cannot prefetch from more places.
BLOCK = 10
# Up to so many neurons times samples, one thread computes, as in torch itself: to synchronize
# threads for ten steps gains little, and costs much if other work keeps them busy.
SERIAL = 1 << 15

_numbers_of_copies = count()

_Rise = Callable[[Tensor], None]  # takes the spikes of a step
_Moving = tuple[Tensor, Tensor, Tensor]  # potential, hold and threshold, changed in place


def integrate(
    constants: SpikingNeurons,
    inhibition: Inhibition | None,
    current: Tensor,
    out: Tensor,
    state: NeuronState,
    compile: bool,
) -> NeuronState:
    """Integrates currents ``[T, B, N]`` into spikes; returns the state, changed in place."""
    # This is done where there is no kernel, and by code that torch compiles if `compile`.
    r, (v, hold, theta) = constants, state
    if r.drive:
        current = current + r.drive
    threshold = theta.to(v) + r.threshold
    moving = v, hold, threshold
    adapts = r.adapts and len(v)  # no samples have no mean
    rise = _rising(r, theta, threshold, len(v)) if adapts else None
    spikes = out
    if compile and inhibition is None and not has_kernel(v.device, v.dtype):
        done = _integrate_blocks(r, current, out, moving, theta if adapts else None)
        current, spikes = current[done:], out[done:]
    rows = spikes if out.dtype == v.dtype else torch.empty_like(spikes, dtype=v.dtype)
    if r.period and inhibition is None and len(current) > _SHORT:
        hold = _loop_long(r, current, rows, moving, rise)
    else:
        _loop(r, inhibition, current, rows, moving, rise)
    if rows is not spikes:
        spikes.copy_(rows)
    return NeuronState(v, hold, theta)


def _loop(
    r: SpikingNeurons,
    inhibition: Inhibition | None,
    current: Tensor,
    out: Tensor,
    moving: _Moving,
    rise: _Rise | None,
) -> None:
    """Integrates any neurons."""
    # Masks are floating-point and memory is written in place: faster than `torch.where`.
    v, hold, threshold = moving
    holds = r.period > 0 or inhibition is not None
    work = torch.empty_like(v) if holds else v
    for spikes, i in zip(out.unbind(0), current.unbind(0), strict=True):
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
        if rise is not None:
            rise(spikes)


def _loop_long(
    r: SpikingNeurons, current: Tensor, out: Tensor, moving: _Moving, rise: _Rise | None
) -> Tensor:
    """Integrates a long sequence with a refractory period, and returns the new ``hold``."""
    # It stores the step until which a neuron is held, instead of counting down; and a neuron that
    # spikes needs no reset, as it is held at reset in the next step.
    steps, (v, hold, threshold) = len(current), moving
    until, free = hold - 1, torch.empty_like(v)
    ends = torch.arange(r.period, r.period + steps, dtype=v.dtype, device=v.device).unbind(0)
    for t, (spikes, i) in enumerate(zip(out.unbind(0), current.unbind(0), strict=True)):
        torch.add(i, v, alpha=r.decay, out=v)
        v.mul_(torch.le(until, t - 1, out=free))
        torch.ge(v, threshold, out=spikes)
        torch.lerp(until, ends[t], spikes, out=until)
        if rise is not None:
            rise(spikes)
    v.addcmul_(v, spikes, value=-1)
    return until.sub_(steps - 1).clamp_(min=0)


def _rising(r: SpikingNeurons, theta: Tensor, threshold: Tensor, batch: int) -> _Rise:
    """Returns a function that raises the threshold with the spikes of a step, in place."""
    shares = threshold.new_full((batch,), r.theta_plus / batch)

    def rise(spikes: Tensor) -> None:
        if theta.dtype == spikes.dtype:
            theta.addmv_(spikes.T, shares, beta=r.decay_theta)
        else:
            theta.mul_(r.decay_theta).add_(spikes.mean(0), alpha=r.theta_plus)
        torch.add(theta, r.threshold, out=threshold)

    return rise


def _integrate_blocks(
    r: SpikingNeurons, current: Tensor, out: Tensor, moving: _Moving, theta: Tensor | None
) -> int:
    """Integrates the steps that fill whole blocks, in place, by compiled code; returns how many."""
    steps, (v, hold, threshold) = len(current) // BLOCK * BLOCK, moving
    if not steps or not v.numel():
        return 0
    current, held = current.contiguous(), hold if r.period else None
    # Compiled code vectorizes bytes, but not booleans.
    spikes = (out.view(torch.uint8) if out.dtype == torch.bool else out).unbind(0)
    # A tensor, because torch compiles again for other Python numbers.
    numbers = v.new_tensor([r.decay, r.period, r.decay_theta, r.theta_plus, r.threshold])
    learned = None if theta is None else theta.clone()
    run = _compiled(
        v.is_cpu and v.numel() <= SERIAL,
        # Everything for which torch would compile again, except the size of the batch.
        (v.device, v.dtype, out.dtype, v.shape[1], not r.period, threshold.ndim, theta is None),
        (v.is_inference(), current.is_inference()),
    )
    try:
        for t in range(0, steps, BLOCK):
            block = slice(t, t + BLOCK)
            run(current[block], spikes[block], v, held, threshold, learned, numbers)
    except RuntimeError as error:
        if not is_compiler_failure(error):
            raise
        raise RuntimeError(
            "Argument `compile` should be True only if torch.compile works, which on a CPU takes a "
            "C++ compiler. Found `compile = True`, and that it fails, for the reason above. Install"
            " a compiler, name it in the environment variable CXX, or leave `compile` out."
        ) from error
    if theta is not None and learned is not None:
        theta.copy_(learned)  # here, as autograd does not see what compiled code changes
    return steps


@cache
def _compiled(serial: bool, *kind: object) -> Callable[..., None]:
    """Returns a compiled copy of `_block` for one kind of arguments."""
    # Each copy has its own code object, as torch stops compiling a code object after eight times.
    code = _block.__code__.replace(co_name=f"_block_{next(_numbers_of_copies)}")
    options: Any = {"cpp.threads": 1} if serial else None
    return torch.compile(FunctionType(code, globals()), options=options)


def _block(
    current: Tensor,
    out: Sequence[Tensor],
    v: Tensor,
    hold: Tensor | None,
    threshold: Tensor,
    theta: Tensor | None,
    numbers: Tensor,
) -> None:
    """Integrates one block, in place."""
    decay, period, decay_theta, rise, fixed = numbers.unbind()
    old = (v, hold, threshold, theta)
    for i, o in zip(current.unbind(), out, strict=True):
        v = i + decay * v
        if hold is not None:
            v = v * (hold <= 0)
        spikes = (v >= threshold).to(v.dtype)
        v = v - v * spikes
        if hold is not None:
            hold = torch.maximum(hold - 1, spikes * period)
        if theta is not None:
            theta = (decay_theta * theta + rise * spikes.mean(0)).to(theta.dtype)
            threshold = (theta + fixed).to(v.dtype)
        o.copy_(spikes)
    for before, after in zip(old, (v, hold, threshold, theta), strict=True):
        if before is not None and after is not None and after is not before:
            before.copy_(after)
