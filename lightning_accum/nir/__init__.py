"""Export of networks to NIR, whose package ``nir`` is imported only then."""

import importlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import type_before_parametrizations

from lightning_accum import nn as layers
from lightning_accum._checks import check_choice, check_module, check_type
from lightning_accum.cells import Layer, Serial

__all__ = ["to_nir"]

Solver = Literal["exact", "euler"]
Shape = tuple[int, ...]
_NEURONS = (layers.LIF, layers.AdaptiveLIF, layers.LeakyIntegrator)
_WHY: dict[type[nn.Module], str] = {
    layers.SurrogateLIF: ", whose spikes subtract the threshold; those of NIR reset the potential",
    layers.PoissonEncoder: ", which draws at random: export the modules after it",
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
        TypeError: if NIR cannot express a module, or an argument has another type.
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
    check_choice("solver", solver, get_args(Solver))
    fits = input_shape is None or isinstance(input_shape, Sequence)
    should = "the shape of one sample in one step, such as `(1, 28, 28)`"
    check_type(fits, "input_shape", input_shape, should, "pass the shape, not the sample")
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
    graph = _NodeGraph(nir, solver, 2 if any(neuron.time_dim == 0 for neuron in neurons) else 1)
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


@dataclass
class _NodeGraph:
    """The nodes and edges of a graph, while modules are added to it."""

    nir: Any
    solver: Solver
    leading: int  # dimensions before a sample's own: 1 for the batch, 2 with time
    nodes: dict[str, Any] = field(default_factory=dict)
    edges: list[tuple[str, str]] = field(default_factory=list)

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
        write = _NODES.get(type_before_parametrizations(module))
        if write is None:
            kinds = sorted({kind.__name__ for kind in _NODES})
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
        for key, value in module.state_dict(keep_vars=True).items():
            if isinstance(value, Tensor) and not value.isfinite().all():
                raise ValueError(
                    f"A network for NIR should have finite parameters. Found NaN or Inf in"
                    f" `{name}.{key}`: export it as it was before they came."
                )
        node = write(self, name, module, shape)
        ends = node.input_type["input"], node.output_type["output"]
        takes, gives = (tuple(int(n) for n in np.atleast_1d(end)) for end in ends)
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
            self.nodes[key] = self.nir.Input(self.nodes[name].input_type["input"])
            self.edges.append((key, name))
        for name in last:
            key = "output" if len(last) == 1 else f"output.{name.partition('.')[2]}"
            self.nodes[key] = self.nir.Output(self.nodes[name].output_type["output"])
            self.edges.append((name, key))


def _linear(to: _NodeGraph, name: str, module: nn.Linear, shape: Shape) -> Any:
    """Returns the node of a linear connection."""
    if module.bias is None:
        return to.nir.Linear(_array(module.weight))
    return to.nir.Affine(_array(module.weight), _array(module.bias))


def _conv(to: _NodeGraph, name: str, module: nn.Conv1d | nn.Conv2d, shape: Shape) -> Any:
    """Returns the node of a convolution, which always has a bias there."""
    if module.padding_mode != "zeros" or module.groups != 1 or len({*module.kernel_size}) > 1:
        raise ValueError(
            "A convolution for NIR should have `padding_mode='zeros'`, `groups=1` and a square"
            f" kernel, as NIR computes shapes of no others. Found `{module}` as `{name}`."
        )
    if len(shape) != len(module.kernel_size) + 1:
        raise ValueError(
            f"The input of `{name}` should have {len(module.kernel_size) + 1} dimensions. Found"
            f" shape {shape}."
        )
    bias = torch.zeros(module.out_channels) if module.bias is None else module.bias
    settings = (module.stride, module.padding, module.dilation)
    if len(module.kernel_size) == 1:
        ints = (value if isinstance(value, str) else value[0] for value in settings)
        return to.nir.Conv1d(shape[1], _array(module.weight), *ints, 1, _array(bias))
    return to.nir.Conv2d(shape[1:], _array(module.weight), *settings, 1, _array(bias))


def _flatten(to: _NodeGraph, name: str, module: nn.Flatten, shape: Shape) -> Any:
    """Returns the node of an ``nn.Flatten``, which has neither time nor batch there."""
    if module.start_dim != to.leading or module.end_dim != -1:
        raise ValueError(
            f"An nn.Flatten for NIR should have `start_dim={to.leading}` and `end_dim=-1`, which"
            " keep the batch, and time if neurons have `time_dim=0`, and flatten the rest. Found"
            f" `{module}` as `{name}`."
        )
    return to.nir.Flatten({"input": np.array(shape)}, start_dim=0, end_dim=-1)


def _lif(to: _NodeGraph, name: str, module: layers.LIF | layers.AdaptiveLIF, shape: Shape) -> Any:
    """Returns the node of integrate-and-fire neurons, with potentials on a scale where R = 1."""
    for option, off in (("inhibition", None), ("refractory", 0.0)):
        value = getattr(module, option)
        if value:
            raise ValueError(
                f"Neurons for NIR should have no `{option}`, which its equations do not have. Found"
                f" `{option} = {value}` in `{name}`: export neurons with `{option}={off}` if the"
                " network may run without."
            )
    threshold = torch.full(module.size, float(module.v_threshold), dtype=torch.float64)
    if isinstance(module, layers.AdaptiveLIF):
        if module.training:
            raise ValueError(
                "AdaptiveLIF neurons for NIR should be in evaluation mode, in which thresholds do"
                f" not change. Found `{name}` in training mode: call `model.eval()`."
            )
        threshold = threshold + module.theta.detach().to(threshold)
    tau, gain = _membrane(to, module)
    ones = np.ones(module.size, np.float32)
    if tau is None:  # without leak, only the distance from rest counts, where neurons start
        over, reset = threshold - module.v_rest, module.v_reset - module.v_rest
        return to.nir.IF(ones, _array(gain * over), np.float32(gain * reset) * ones)
    return to.nir.LIF(
        tau=tau * ones,
        r=ones,
        v_leak=np.float32(gain * module.v_rest) * ones,
        v_threshold=_array(gain * threshold),
        v_reset=np.float32(gain * module.v_reset) * ones,
    )


def _integrator(to: _NodeGraph, name: str, module: layers.LeakyIntegrator, shape: Shape) -> Any:
    """Returns the node of a readout, whose potential is its output, and is not scaled."""
    tau, gain = _membrane(to, module)
    ones = np.ones(module.size, np.float32)
    r = np.float32(1 / gain) * ones
    return to.nir.I(r) if tau is None else to.nir.LI(tau * ones, r, 0 * ones)


def _membrane(
    to: _NodeGraph, module: layers.LIF | layers.AdaptiveLIF | layers.LeakyIntegrator
) -> tuple[np.float32 | None, float]:
    """Returns tau in seconds, ``None`` without leak, and what a current of 1 adds in a step."""
    step = module.dt / 1000
    if math.isinf(module.tc_mem):
        return None, step
    gain = -math.expm1(-module.dt / module.tc_mem)
    return np.float32(module.tc_mem / 1000 if to.solver == "exact" else step / gain), gain


def _array(values: Tensor) -> Any:
    """Returns values as an array that shares no memory."""
    return values.detach().cpu().float().numpy().copy()


_NODES: dict[type[nn.Module], Callable[..., Any]] = {
    **dict.fromkeys((layers.Linear, nn.Linear), _linear),
    **dict.fromkeys((layers.Conv1d, nn.Conv1d, layers.Conv2d, nn.Conv2d), _conv),
    **dict.fromkeys((layers.LIF, layers.AdaptiveLIF), _lif),
    nn.Flatten: _flatten,
    layers.LeakyIntegrator: _integrator,
}
"""The function that writes the node of each module."""
