"""Layers: connections and neurons by name, and their cells."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_mapping
from lightning_accum._compat.torch import (
    forward_methods,
    hook_count,
    hooks_around,
    is_traced,
    own_tensor,
)
from lightning_accum.cells.cell import Cell
from lightning_accum.nn.linear import Linear
from lightning_accum.nn.neuron import Neurons
from lightning_accum.observe.hooks import Hook

# Sequences of more currents run in pieces of at most so many: 64 MB and 16 MB in single precision.
# Memory of the size of a piece is used again, and larger memory is fetched anew for each sequence:
# it costs more than the currents of a few neurons at a time, which are not written.
_LONG, _CURRENTS = 1 << 24, 1 << 22
# Where the forward pass of a connection is defined that treats each step by itself, and that of
# neurons that go on from call to call.
_STEP_BY_STEP = ("torch.nn.modules.linear", "lightning_accum.nn.linear")
_GOES_ON = "lightning_accum.nn.neuron"


class Layer(nn.Module):
    """Owns connections and neurons by name, and forms cells of them.

    ``forward`` passes the sum of the connections' outputs to every neuron.

    Args:
        connections: modules with parameters to train, by name.
        neurons: modules whose outputs are postsynaptic activity, by name.

    Raises:
        ValueError: if one of them is empty.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> layer = Layer({"a": nn.Linear(2, 3), "b": nn.Linear(4, 3)}, {"n": nn.ReLU()})
        >>> layer(a=torch.ones(1, 2), b=torch.ones(1, 4))["n"].shape
        torch.Size([1, 3])
        >>> layer.cell("a", "n").neuron
        ReLU()
    """

    def __init__(self, connections: dict[str, nn.Module], neurons: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, given in (("connections", connections), ("neurons", neurons)):
            check_mapping(name, given)
            if not given:
                raise ValueError(f"Argument `{name}` should name at least one module. Found none.")
            for key, module in given.items():
                if not isinstance(module, nn.Module):
                    raise TypeError(
                        f"Argument `{name}` should hold torch.nn.Modules. Found"
                        f" `{type(module).__name__}` for `{key}`."
                    )
        self.connections = nn.ModuleDict(connections)
        self.neurons = nn.ModuleDict(neurons)

    def cell(self, connection: str, neuron: str) -> Cell:
        """Returns the cell of a connection and a neuron.

        Raises:
            AttributeError: if there is no such module.
        """
        for argument, name, owned in (
            ("connection", connection, self.connections),
            ("neuron", neuron, self.neurons),
        ):
            if name not in owned:
                raise AttributeError(
                    f"Argument `{argument}` should be one of {list(owned)}."
                    f" Found `{argument} = {name!r}`."
                )
        return Cell(self.connections[connection], self.neurons[neuron])

    @property
    def cells(self) -> dict[tuple[str, str], Cell]:
        """Every cell of the layer, by the names of connection and neuron."""
        return {(c, n): self.cell(c, n) for c in self.connections for n in self.neurons}

    def forward(self, **inputs: Tensor) -> dict[str, Any]:
        """Runs connections on their inputs, and every neuron on the sum.

        Args:
            **inputs: the input of each connection to run, by the connection's name.

        Returns:
            The output of each neuron, by name.
        """
        if not inputs:
            raise ValueError(
                f"Arguments of a Layer should be inputs by the names of its connections,"
                f" {list(self.connections)}. Found none."
            )
        connections, neurons = [self.connections[name] for name in inputs], self.neurons.values()
        values = list(inputs.values())

        def run(*values: Tensor) -> list[Any]:
            outputs = (c(value) for c, value in zip(connections, values, strict=True))
            current = functools.reduce(operator.add, outputs)
            return [neuron(current) for neuron in neurons]

        steps = steps_together(values, connections, neurons)
        found = run(*values) if steps is None else run_in_pieces(run, values, steps)
        return dict(zip(self.neurons, found, strict=True))


class Serial(nn.Module):
    """The layer of one connection and one neuron.

    Currents of a long sequence that no hook sees are computed for a few neurons, or a few steps, at
    a time: for boolean spikes, :class:`~lightning_accum.nn.Linear` and
    :class:`~lightning_accum.nn.LIF` or :class:`~lightning_accum.nn.AdaptiveLIF`, also while a rule
    watches.

    Args:
        connection: the module with parameters to train.
        neuron: the module whose output is postsynaptic activity.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> layer = Serial(nn.Linear(4, 2), nn.ReLU())
        >>> layer(torch.ones(1, 4)).shape
        torch.Size([1, 2])
        >>> layer.cell.connection is layer.connection
        True
    """

    def __init__(self, connection: nn.Module, neuron: nn.Module) -> None:
        super().__init__()
        Cell(connection, neuron)  # checks the types
        self.connection = connection
        self.neuron = neuron

    @property
    def cell(self) -> Cell:
        """The cell of the layer."""
        return Cell(self.connection, self.neuron)

    def forward(self, inputs: Tensor) -> Any:
        """Returns the neuron's output for the connection's output."""
        connection, neuron = self.connection, self.neuron
        later = {"later": True} if _unseen_between(connection, neuron, inputs) else {}
        steps = steps_together((inputs,), (connection,), (neuron,))
        if steps is None:
            return neuron(connection(inputs, **later))
        return run_in_pieces(lambda x: (neuron(connection(x, **later)),), (inputs,), steps)[0]


def steps_together(
    inputs: Sequence[Tensor], connections: Collection[nn.Module], neurons: Collection[nn.Module]
) -> int | None:
    """Returns how many steps of a sequence to run together; ``None`` for all, as when watched."""
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


def _unseen_between(connection: nn.Module, neuron: nn.Module, x: Any) -> bool:
    """Returns whether spikes make many currents that nobody sees, and that neurons may compute."""
    if type(connection) is not Linear or not isinstance(neuron, Neurons) or neuron.time_dim is None:
        return False
    if not isinstance(x, Tensor) or x.dtype != torch.bool or x.ndim != 3 or is_traced():
        return False
    if x.shape[0] * x.shape[1] * connection.out_features <= _CURRENTS:
        return False
    forwards = forward_methods(connection), forward_methods(neuron)
    (_, after), (before, behind) = hooks_around(connection), hooks_around(neuron)
    watched = after or before or not all(isinstance(hook, Hook) for hook in behind)
    return forwards == ([_STEP_BY_STEP[1]], [_GOES_ON]) and not watched


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
