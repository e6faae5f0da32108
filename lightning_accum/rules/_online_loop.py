"""Passes a layer and its rule to the compiled loop that learns after each step, if both suit it."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lightning_accum._compat import hook_count, is_traced
from lightning_accum.cells.layer import Serial
from lightning_accum.cells.state import CellState
from lightning_accum.engine.state import trace_key
from lightning_accum.nn.linear import Linear
from lightning_accum.nn.neuron import Neurons
from lightning_accum.rules.base import Rule
from lightning_accum.sparse.events import SpikeRows
from lightning_accum.sparse.neurons import (
    NeuronState,
    OnlineState,
    PairSTDP,
    SpikingNeurons,
    run_online,
)
from lightning_accum.updates import Accumulator, Clamp, Updater


class _Suited(NamedTuple):
    """A layer and a rule that suit the loop."""

    connection: nn.Linear
    neuron: Neurons
    state: CellState
    updater: Updater
    name: str
    raster: Tensor
    neurons: SpikingNeurons
    pairs: PairSTDP
    limits: tuple[float, float] | None


@torch.no_grad()
def run_compiled(rule: Rule, layer: nn.Module, inputs: Tensor) -> Tensor | None:
    """Simulates a layer and learns after each step; ``None`` without a change if it cannot."""
    found = _suited(rule, layer, inputs)
    if found is None:
        return None
    neuron, weight, pairs = found.neuron, found.connection.weight, found.pairs
    steps, batch, _ = inputs.shape
    mode = "nearest" if pairs.nearest else "cumulative"
    shapes = inputs.shape[1:], torch.Size([batch, len(weight)])
    keys = trace_key("pre", pairs.decay_pre, mode), trace_key("post", pairs.decay_post, mode)
    traces = [weight.new_zeros(shape) for shape in shapes]
    for trace, key in zip(traces, keys, strict=True):
        left = found.state.carried.get(key)
        if left is not None and left.shape == trace.shape:
            trace.copy_(left)
    before = OnlineState(*neuron.begin_loop(weight.new_empty(shapes[1])), *traces)
    done = run_online(
        found.raster, weight, found.connection.bias, found.neurons, pairs, before, found.limits
    )
    if done is None or not bool(done[1].isfinite().all()):
        return None
    spikes, transposed, after = done
    events = found.updater.events
    events.applying(found.updater, ("weight",))
    weight.copy_(transposed.t())
    events.applied(found.updater, ("weight",), {})
    neuron.end_loop(NeuronState(after.v, after.hold, after.theta), steps)
    rule.events.evaluated(found.name, found.raster, spikes, {})
    used = (keys[0], after.pre, pairs.rate_post), (keys[1], after.post, pairs.rate_pre)
    found.state.keep({key: trace for key, trace, rate in used if rate}, "")
    found.state.samples["weight"] = found.state.samples.get("weight", 0) + steps * batch
    dtype = inputs.dtype if inputs.is_floating_point() else weight.dtype
    return spikes.to(neuron.spike_dtype or dtype)


def _suited(rule: Rule, layer: nn.Module, inputs: Tensor) -> _Suited | None:
    """Returns what the loop needs; ``None`` if it does not suit."""
    cells = list(rule.named_cells)
    if len(cells) != 1 or not isinstance(layer, Serial) or inputs.ndim != 3:
        return None
    ((name, (cell, _)),) = cells
    connection, neuron = layer.connection, layer.neuron
    if type(connection) not in (nn.Linear, Linear) or not isinstance(neuron, Neurons):
        return None
    if cell.connection is not connection or cell.neuron is not neuron:
        return None
    assert isinstance(connection, nn.Linear)
    state, raster = rule.state_of(name), _as_raster(inputs)
    neurons = neuron.loop_constants()
    pairs = rule.loop_constants(state.hyperparameters, inputs.shape[1])
    limits = _limits(rule, name, connection)
    suits = (
        inputs.shape[2] == connection.in_features
        and neuron.size == (connection.out_features,)
        and (connection.bias is None or connection.bias.dtype == connection.weight.dtype)
        and rule.recorded_steps(name) == 0
        and _only_rule_watches(rule, layer)
    )
    if raster is None or neurons is None or pairs is None or limits is None or not suits:
        return None
    updater = rule.updater_of(name)
    bounds = None if limits == (-math.inf, math.inf) else limits
    return _Suited(connection, neuron, state, updater, name, raster, neurons, pairs, bounds)


def _limits(rule: Rule, name: str, connection: nn.Linear) -> tuple[float, float] | None:
    """Returns the limits of the weight if nothing else is done to a change, otherwise ``None``."""
    updater, weight = rule.updater_of(name), connection.weight
    if rule.state_of(name).hyperparameters.params != ("weight",):
        return None
    pending: Accumulator = getattr(updater, "weight")  # noqa: B009
    constraints = updater.constraints_of("weight")
    simple = (
        type(weight) is nn.Parameter
        and weight.is_cpu
        and not hook_count(updater)
        and pending.empty
        and not pending.bounded
        and [type(fn) for fn in constraints] in ([], [Clamp])
    )
    if not simple:
        return None
    low, high = updater.limits("weight")
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    inside = not constraints or bool(((weight >= low) & (weight <= high)).all())
    return (low, high) if inside else None


def _only_rule_watches(rule: Rule, layer: Serial) -> bool:
    """Returns whether the rule watches the layer in training mode, and nothing else does."""
    modules: tuple[nn.Module, ...] = (layer, layer.connection, layer.neuron)
    own = list(rule.monitors)
    return (
        rule.recording
        and all(monitor.registered for monitor in own)
        and all(module.training for module in modules[1:])
        and sum(hook_count(module) for module in modules) == len(own)
        and not (torch.is_autocast_enabled("cpu") or is_traced())
    )


def _as_raster(inputs: Tensor) -> Tensor | None:
    """Returns the input as booleans, ``None`` if it is not spikes on the CPU."""
    if not inputs.is_cpu or inputs.is_complex():
        return None
    if inputs.dtype == torch.bool:
        return inputs
    raster = torch.empty(inputs.shape, dtype=torch.bool)
    found = SpikeRows(raster[None], inputs.dtype).write(0, inputs)
    if found is None:
        raster = inputs != 0
        return raster if bool((inputs == raster).all()) else None
    return raster if found >= 0 else None
