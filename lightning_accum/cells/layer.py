"""Layers: connections and neurons by name, and their cells."""

import functools
import operator
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum import _checks as checks
from lightning_accum._compat.torch_internals import forward_methods, hooks_around, is_traced
from lightning_accum.cells.cell import Cell
from lightning_accum.nn.linear import Linear
from lightning_accum.nn.neuron import Neurons
from lightning_accum.observe.hooks import Hook

# Where the forward passes are defined that leave the currents to the neurons.
_FORWARDS = ["lightning_accum.nn.linear"], ["lightning_accum.nn.neuron"]


class Layer(nn.Module):
    """Owns connections and neurons by name, and forms cells of them.

    ``forward`` passes the sum of the connections' outputs to every neuron.

    Args:
        connections: modules with parameters to train, by name.
        neurons: modules whose outputs are postsynaptic activity, by name.

    Raises:
        ValueError: if one of them is empty.

    Example:
        >>> import torch
        >>> connections = {"a": torch.nn.Linear(2, 3), "b": torch.nn.Linear(4, 3)}
        >>> layer = Layer(connections, {"n": torch.nn.ReLU()})
        >>> layer(a=torch.ones(1, 2), b=torch.ones(1, 4))["n"].shape
        torch.Size([1, 3])
        >>> layer.cell("a", "n").neuron
        ReLU()
    """

    def __init__(self, connections: dict[str, nn.Module], neurons: dict[str, nn.Module]) -> None:
        super().__init__()
        for name, given in (("connections", connections), ("neurons", neurons)):
            checks.check_mapping(name, given)
            checks.check_value(bool(given), name, given, "modules by name, at least one")
            checks.check_module(**{f"{name}[{key!r}]": module for key, module in given.items()})
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
        outputs = (self.connections[name](value) for name, value in inputs.items())
        current = functools.reduce(operator.add, outputs)
        return {name: neuron(current) for name, neuron in self.neurons.items()}


class Serial(nn.Module):
    """The layer of one connection and one neuron.

    Args:
        connection: the module with parameters to train.
        neuron: the module whose output is postsynaptic activity.

    Example:
        >>> import torch
        >>> layer = Serial(torch.nn.Linear(4, 2), torch.nn.ReLU())
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
        later = {"later": True} if _unseen_between(self.connection, self.neuron, inputs) else {}
        return self.neuron(self.connection(inputs, **later))


def _unseen_between(connection: nn.Module, neuron: nn.Module, x: Any) -> bool:
    """Returns whether spikes make currents that nobody sees, and that neurons may compute."""
    if type(connection) is not Linear or not isinstance(neuron, Neurons) or neuron.time_dim is None:
        return False
    if not isinstance(x, Tensor) or x.dtype != torch.bool or x.ndim != 3 or is_traced():
        return False
    forwards = forward_methods(connection), forward_methods(neuron)
    (_, after), (before, behind) = hooks_around(connection), hooks_around(neuron)
    watched = after or before or not all(isinstance(hook, Hook) for hook in behind)
    return forwards == _FORWARDS and not watched
