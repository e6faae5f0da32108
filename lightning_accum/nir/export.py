"""Writing a network as a graph of NIR; the package ``nir`` is imported only then."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from typing import Any, get_args

import numpy as np
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from lightning_accum._checks import check_module
from lightning_accum.cells import Layer, Serial
from lightning_accum.nir.nodes import NODES, Shape, Solver, Target
from lightning_accum.nn import LIF, AdaptiveLIF, LeakyIntegrator, PoissonEncoder, SurrogateLIF

_NEURONS = (LIF, AdaptiveLIF, LeakyIntegrator)
_WHY: dict[type[nn.Module], str] = {
    SurrogateLIF: ", whose spikes subtract the threshold, while those of NIR reset the potential",
    PoissonEncoder: ", which draws at random: export the modules after it",
}


def to_nir(
    model: nn.Module, input_shape: Sequence[int] | None = None, solver: Solver = "exact"
) -> Any:
    r"""Returns a network as a graph of NIR, which ``nir.write`` saves and other simulators run.

    Neurons are written with NIR's equations and time in seconds:

    .. math::
        \tau \dot V = (V_\text{leak} - V) + R I, \qquad
        \text{a spike if } V > V_\text{th}, \text{ then } V = V_\text{reset}

    A current of 1 that lasts for a step raises :math:`V` by 1 here, and by
    :math:`g = 1 - e^{-\Delta t / \tau}` there, with :math:`R = 1`. So the potentials of spiking
    neurons are multiplied by :math:`g`; weights stay as they were learned. The output of a
    ``LeakyIntegrator`` is its potential, so that it has :math:`R = 1 / g`.

    Args:
        model: an ``nn.Sequential``, a :class:`~lightning_accum.Serial`, a
            :class:`~lightning_accum.Layer`, or one module. They may hold linear connections and
            convolutions in one or two dimensions, of this package or of torch, ``nn.Flatten``,
            :class:`~lightning_accum.nn.LIF`, :class:`~lightning_accum.nn.AdaptiveLIF` in evaluation
            mode, in which its thresholds do not change, and
            :class:`~lightning_accum.nn.LeakyIntegrator`.
        input_shape: shape of one sample in one step, such as ``(1, 28, 28)``; needed if the network
            begins with a convolution or ``nn.Flatten``.
        solver: how the simulator that is to run the graph solves the equations, with the step
            ``dt`` of the neurons. ``"exact"``: by exponentials. ``"euler"``: as Norse and snnTorch
            do; then :math:`\tau` is written as :math:`\Delta t / g`, so that potentials decay by
            the same factor in a step.

    Returns:
        A ``nir.NIRGraph``, whose nodes have the names of the modules. Its metadata have the step
        ``dt`` in seconds.

    Raises:
        ModuleNotFoundError: if ``nir`` is not installed.
        TypeError: if NIR cannot express a module, or ``model`` is not a module.
        ValueError: if NIR cannot express a setting, such as ``refractory`` or ``inhibition``, or if
            shapes or steps do not fit; or if parameters are not finite.

    Example:
        >>> from lightning_accum import Serial
        >>> from lightning_accum.nn import LIF, Linear
        >>> graph = to_nir(Serial(Linear(4, 2, bias=False), LIF(2, tc_mem=20.0)))
        >>> list(graph.nodes)
        ['connection', 'neuron', 'input', 'output']

    Source:
        Pedersen et al. 2024, "Neuromorphic intermediate representation: a unified instruction set
        for interoperable brain-inspired computing", doi:10.1038/s41467-024-52259-9.
    """
    check_module(model=model)
    if solver not in get_args(Solver):
        raise ValueError(
            f"Argument `solver` should be one of {get_args(Solver)}. Found `{solver = }`."
        )
    try:
        nir = importlib.import_module("nir")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "Package `nir` should be installed to export a network. Found none: run"
            ' `pip install "lightning-accum[nir]"`.'
        ) from error
    neurons = [module for module in model.modules() if isinstance(module, _NEURONS)]
    steps = sorted({neuron.dt for neuron in neurons})
    if len(steps) > 1:
        raise ValueError(
            "All neurons of a network for NIR should have the same step `dt`, which simulators have"
            f" only one of. Found {steps} ms."
        )
    leading = 2 if any(neuron.time_dim == 0 for neuron in neurons) else 1
    graph = _Graph(Target(nir, solver, leading))
    given = None if input_shape is None else tuple(input_shape)
    if isinstance(model, Layer):
        graph.add_layer(model, given)
    else:
        graph.add_chain([*_chain(model, "")], given)
    metadata = {"dt": steps[0] / 1000} if steps else {}
    return nir.NIRGraph(nodes=graph.nodes, edges=graph.edges, metadata=metadata)


def _chain(module: nn.Module, name: str) -> Iterator[tuple[str, nn.Module]]:
    """Yields the modules of nested chains in the order in which they run, by their names."""
    if type(module).forward in (nn.Sequential.forward, Serial.forward):
        for key, child in module.named_children():
            yield from _chain(child, f"{name}.{key}" if name else key)
    elif type(module) is not nn.Identity:
        yield name or type(module).__name__.lower(), module


class _Graph:
    """The nodes and edges of a graph, while modules are added to it."""

    def __init__(self, to: Target) -> None:
        self.to = to
        self.nodes: dict[str, Any] = {}
        self.edges: list[tuple[str, str]] = []

    def add_chain(self, chain: Sequence[tuple[str, nn.Module]], shape: Shape | None) -> None:
        """Adds modules that run one after the other."""
        if not chain:
            raise ValueError("A network for NIR should hold at least one module. Found none.")
        before: list[str] = []
        for name, module in chain:
            shape = self._add(name, module, shape, before)
            before = [name]
        self._add_ends([chain[0][0]], before)

    def add_layer(self, layer: Layer, shape: Shape | None) -> None:
        """Adds connections, whose sum goes to each of the neurons."""
        connections = {f"connections.{k}": module for k, module in layer.connections.items()}
        neurons = {f"neurons.{k}": module for k, module in layer.neurons.items()}
        given = [self._add(name, module, shape, []) for name, module in connections.items()]
        for name, module in neurons.items():
            for each in {*given}:
                self._add(name, module, each, [])
            self.edges += [(connection, name) for connection in connections]
        self._add_ends([*connections], [*neurons])

    def _add(self, name: str, module: nn.Module, shape: Shape | None, before: list[str]) -> Shape:
        """Adds a module, whose input has a shape; returns the shape of its output."""
        write = NODES.get(type_before_parametrizations(module))
        if write is None:
            kinds = sorted({kind.__name__ for kind in NODES})
            why = _WHY.get(type(module), ": pass such modules in the order in which they run")
            raise TypeError(
                f"A network for NIR should consist of {', '.join(kinds)}, in an nn.Sequential, a"
                f" Serial or a Layer. Found `{type(module).__name__}` as `{name}`{why}."
            )
        if shape is None and isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Flatten)):
            raise ValueError(
                "Argument `input_shape` should be the shape of one sample in one step if a network"
                f" begins with `{type(module).__name__}`. Found None for `{name}`."
            )
        _check_finite(name, module)
        node = write(self.to, name, module, shape)
        takes, gives = (
            tuple(int(n) for n in np.atleast_1d(kind))
            for kind in (node.input_type["input"], node.output_type["output"])
        )
        if shape not in (None, takes):
            raise ValueError(
                f"The input of `{name}` should have shape {takes}, of one sample in one step. Found"
                f" {shape} before it."
            )
        self.nodes[name] = node
        self.edges += [(each, name) for each in before]
        return gives

    def _add_ends(self, first: list[str], last: list[str]) -> None:
        """Adds inputs before the first modules, and outputs after the last."""
        for name in first:
            key = "input" if len(first) == 1 else f"input.{name.partition('.')[2]}"
            self.nodes[key] = self.to.nir.Input(self.nodes[name].input_type["input"])
            self.edges.append((key, name))
        for name in last:
            key = "output" if len(last) == 1 else f"output.{name.partition('.')[2]}"
            self.nodes[key] = self.to.nir.Output(self.nodes[name].output_type["output"])
            self.edges.append((name, key))


def _check_finite(name: str, module: nn.Module) -> None:
    """Raises a ``ValueError`` if a module has weights or thresholds that are not finite."""
    for key, value in module.state_dict(keep_vars=True).items():
        if isinstance(value, Tensor) and not value.isfinite().all():
            raise ValueError(
                f"A network for NIR should have finite parameters. Found NaN or Inf in"
                f" `{name}.{key}`: export it as it was before they came."
            )
