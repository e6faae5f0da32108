"""Blocks of steps of a recurrence of neurons, as one pass that torch compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from types import FunctionType

import torch
from torch import Tensor

from lightning_accum._compat import is_compiler_failure

# Steps of one pass: more steps take longer to compile, and a CPU cannot prefetch from more places.
BLOCK = 10
# Up to so many neurons times samples, one thread computes, as in torch itself: to synchronize
# threads for ten steps gains little, and costs much if other work keeps them busy.
SERIAL = 1 << 15

_numbers = count()


def integrate_blocks(
    current: Tensor,
    out: Tensor,
    v: Tensor,
    hold: Tensor | None,
    threshold: Tensor,
    theta: Tensor | None,
    coefficients: Sequence[float],
) -> int:
    """Integrates the steps that fill whole blocks.

    Args:
        current: input current, ``[T, B, N]``.
        out: receives the spikes, ``[T, B, N]``.
        v: membrane potential relative to reset, ``[B, N]``, changed in place.
        hold: number of steps for which a neuron is still held at reset, ``[B, N]``, changed in
            place; ``None`` without a refractory period.
        threshold: threshold relative to reset, ``[]`` or ``[N]``, changed in place if it adapts.
        theta: rise of the threshold, ``[N]``, changed in place; ``None`` if it does not adapt.
        coefficients: decay of the potential, refractory steps, decay of theta, its rise, and the
            threshold without theta.

    Returns:
        The number of integrated steps; the steps after them are left to the caller.

    Raises:
        RuntimeError: if the code cannot be compiled.
    """
    steps = len(current) // BLOCK * BLOCK
    if not steps or not v.numel():
        return 0
    current = current.contiguous()
    # Compiled code vectorizes bytes, but not booleans.
    spikes = (out.view(torch.uint8) if out.dtype == torch.bool else out).unbind(0)
    # A tensor, because torch compiles again for other Python numbers.
    numbers = v.new_tensor(coefficients)
    learned = None if theta is None else theta.clone()
    run = _compiled(
        v.is_cpu and v.numel() <= SERIAL,
        # Everything for which torch would compile again, except the size of the batch.
        (v.device, v.dtype, out.dtype, v.shape[1], hold is None, threshold.ndim, theta is None),
        (v.is_inference(), current.is_inference()),
    )
    try:
        for t in range(0, steps, BLOCK):
            block = slice(t, t + BLOCK)
            run(current[block], spikes[block], v, hold, threshold, learned, numbers)
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
    """Returns a compiled copy of `_block` for one kind of arguments.

    Each copy has its own code object, as torch stops compiling a code object after eight times.
    """
    code = _block.__code__.replace(co_name=f"_block_{next(_numbers)}")
    return torch.compile(
        FunctionType(code, globals()), options={"cpp.threads": 1} if serial else None
    )


def _block(
    current: Tensor,
    out: Sequence[Tensor],
    v: Tensor,
    hold: Tensor | None,
    threshold: Tensor,
    theta: Tensor | None,
    numbers: Tensor,
) -> None:
    """Integrates one block; the arguments are those of `integrate_blocks`."""
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
