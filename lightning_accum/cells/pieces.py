"""Long sequences through a layer, in pieces whose currents take bounded memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._compat import forward_methods, hook_count, is_traced, own_tensor

# Sequences of more currents run in pieces of at most so many: 64 MB and 16 MB in single precision.
# Memory of the size of a piece is used again, and larger memory is fetched anew for each sequence.
_LONG, _CURRENTS = 1 << 24, 1 << 22
# Where the forward pass of a connection is defined that treats each step by itself, and that of
# neurons that go on from call to call.
_STEP_BY_STEP = ("torch.nn.modules.linear", "lightning_accum.nn.linear")
_GOES_ON = "lightning_accum.nn.neuron"


def steps_together(
    inputs: Sequence[Tensor], connections: Collection[nn.Module], neurons: Collection[nn.Module]
) -> int | None:
    """Returns how many steps of a sequence to run together; ``None`` to run all of them at once.

    A sequence runs in pieces if it is long, and nobody watches the connections and the neurons. The
    result is that of the whole sequence, up to the rounding of the currents, and only the neurons'
    output is as long as the sequence.
    """
    first = inputs[0]
    if not isinstance(first, Tensor) or first.ndim != 3:
        return None
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    if tracing or is_traced():  # either would fix the length of the pieces
        return None
    size = getattr(next(iter(connections)), "out_features", 0)
    row = first.shape[1] * size
    if first.shape[0] * row <= _LONG:
        return None
    pairs = zip(connections, inputs, strict=True)
    suits = all(_suits(each, x, size) and x.shape[:2] == first.shape[:2] for each, x in pairs)
    if not suits or not all(_goes_on(neuron, size) for neuron in neurons):
        return None
    return max(1, _CURRENTS // row)


def run_in_pieces(
    run: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], steps: int
) -> list[Tensor]:
    """Runs a function on sequences piece by piece, and joins what it returns."""
    total, found = len(inputs[0]), list[Tensor]()
    for start in range(0, total, steps):
        pieces = run(*(each[start : start + steps] for each in inputs))
        found = found or [piece.new_empty((total, *piece.shape[1:])) for piece in pieces]
        for whole, piece in zip(found, pieces, strict=True):
            whole[start : start + steps] = piece
    return found


def _suits(connection: nn.Module, x: Any, size: int) -> bool:
    """Returns whether a connection treats each step by itself, and nobody sees its calls."""
    return (
        isinstance(connection, nn.Linear)
        and forward_methods(connection) in ([each] for each in _STEP_BY_STEP)
        and own_tensor(connection, "weight") is not None  # it is not computed in each call
        and connection.out_features == size
        and isinstance(x, Tensor)
        and x.ndim == 3
        and x.shape[2] == connection.in_features
        and not hook_count(connection)
    )


def _goes_on(neuron: nn.Module, size: int) -> bool:
    """Returns whether a neuron goes on from call to call, and nobody sees its calls."""
    return (
        forward_methods(neuron) == [_GOES_ON]
        and getattr(neuron, "time_dim", None) == 0
        and math.prod(getattr(neuron, "size", ())) == size
        and not hook_count(neuron)
    )
