"""Layers: connections and neurons by name, and the cells that they make."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lightning_accum._checks import check_mapping
from lightning_accum.cells.cell import Cell


class Layer(nn.Module):
    """Owns connections and neurons by name, and makes cells of them.

    ``forward`` adds up what the connections give and passes it to every neuron.

    Args:
        connections: modules with parameters to train, by name.
        neurons: modules that give postsynaptic activity, by name.

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
        """The cell of a connection and a neuron.

        Raises:
            AttributeError: if a name is not there.
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
        """Every cell that the layer can make, by the names of connection and neuron."""
        return {(c, n): self.cell(c, n) for c in self.connections for n in self.neurons}

    def forward(self, **inputs: Tensor) -> dict[str, Any]:
        """Runs the connections that are given an input, and every neuron on their sum.

        Args:
            **inputs: for each connection to run, its input.

        Returns:
            What each neuron gave, by name.
        """
        if not inputs:
            raise ValueError(
                f"Arguments of a Layer should be inputs by the names of its connections,"
                f" {list(self.connections)}. Found none."
            )
        outputs = [self.connections[name](value) for name, value in inputs.items()]
        current = outputs[0]
        for output in outputs[1:]:
            current = current + output
        return {name: neuron(current) for name, neuron in self.neurons.items()}


class Serial(nn.Module):
    """The layer of one connection and one neuron.

    Args:
        connection: the module with parameters to train.
        neuron: the module that gives postsynaptic activity.

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
        Cell(connection, neuron)  # for its check of the types
        self.connection = connection
        self.neuron = neuron

    @property
    def cell(self) -> Cell:
        """The layer's one cell."""
        return Cell(self.connection, self.neuron)

    def forward(self, inputs: Tensor) -> Any:
        """What the neuron gives for what the connection gives."""
        return self.neuron(self.connection(inputs))
