"""Some steps of a recurrence of neurons at a time, in one pass that torch compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import count
from types import FunctionType

import torch
from torch import Tensor

# Steps of one pass: more take longer to compile, and read from more places at once than a CPU can
# foresee.
BLOCK = 10
# Neurons of a batch up to which torch itself computes with one thread. To wait for others ten steps
# at a time gains little, and loses much where they have other work.
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
    """Integrates as many steps as whole blocks hold.

    Args:
        current: input current, ``[T, B, N]``.
        out: the spikes, ``[T, B, N]``, to write to.
        v: membrane potential relative to reset, ``[B, N]``, changed in place.
        hold: steps for which a neuron is yet held at reset, ``[B, N]``, changed in place; ``None``
            where there is no refractory period.
        threshold: threshold relative to reset, ``[]`` or ``[N]``, changed in place if it adapts.
        theta: the part of the threshold that adapts, ``[N]``, changed in place; ``None`` where none
            does.
        coefficients: decay of the potential, refractory steps, decay of theta, its rise, and the
            part of the threshold that stays.

    Returns:
        The number of steps done; those after them are left to the caller.

    Raises:
        RuntimeError: the code cannot be compiled.
    """
    steps = len(current) // BLOCK * BLOCK
    if not steps or not v.numel():
        return 0
    current = current.contiguous()
    # code for bytes works on many at once, code for booleans does not
    spikes = (out.view(torch.uint8) if out.dtype == torch.bool else out).unbind(0)
    # as a tensor: the code reads the numbers, and is not compiled anew for others
    numbers = v.new_tensor(coefficients)
    learned = None if theta is None else theta.clone()
    run = _compiled(
        v.is_cpu and v.numel() <= SERIAL,
        # all that it would be compiled anew for, but the size of the batch
        (v.device, v.dtype, out.dtype, v.shape[1], hold is None, threshold.ndim, theta is None),
        (v.is_inference(), current.is_inference()),
    )
    try:
        for t in range(0, steps, BLOCK):
            block = slice(t, t + BLOCK)
            run(current[block], spikes[block], v, hold, threshold, learned, numbers)
    except RuntimeError as error:
        from torch._dynamo.exc import BackendCompilerFailed  # takes long to import

        if not isinstance(error, BackendCompilerFailed):
            raise
        raise RuntimeError(
            "Argument `compile` should be True where torch.compile works, which on a CPU takes a "
            "C++ compiler. Found `compile = True` where it fails, for the reason above. Install a "
            "compiler, name it in the environment variable CXX, or leave `compile` out."
        ) from error
    if theta is not None and learned is not None:
        theta.copy_(learned)  # not by the code, of whose changes torch would not know
    return steps


@cache
def _compiled(serial: bool, *kind: object) -> Callable[..., None]:
    """The compiled form of `_block`, one for each kind of arguments.

    Each has code of its own: torch gives up a piece of code that it has compiled eight times.
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
