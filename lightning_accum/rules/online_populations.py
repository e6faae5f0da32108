"""Simulates a recurrent network over a sequence, and learns as it goes, in one compiled loop."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from lightning_accum._compat.torch import hook_count, is_traced
from lightning_accum.cells.populations import Ends, Populations
from lightning_accum.cells.state import CellState
from lightning_accum.engine.state import StateKey, trace_key
from lightning_accum.nn.neuron import Neurons
from lightning_accum.nn.sparse_linear import SparseLinear
from lightning_accum.rules.base import Rule
from lightning_accum.sparse.neurons import PairSTDP
from lightning_accum.sparse.recurrent import (
    SparseGroup,
    SparseWeights,
    can_run_recurrent,
    run_recurrent,
)
from lightning_accum.updates import Accumulator, Clamp, Updater


class _Learner(NamedTuple):
    """A cell of the rule that suits the loop."""

    name: str
    ends: Ends
    state: CellState
    updater: Updater
    pairs: PairSTDP
    limits: tuple[float, float]


@torch.no_grad()
def run_populations(
    rule: Rule, layer: Populations, inputs: Tensor, given: Mapping[str, Any]
) -> Tensor | None:
    """Simulates a network and learns after each step; ``None`` without a change if it cannot."""
    learners = suited(rule, layer, inputs, given)
    if isinstance(learners, str):
        return None
    neurons: list[Neurons] = list(layer.neurons.values())  # type: ignore[arg-type]
    like = _weights_of(layer)[0].new_empty(1, 0)
    current, past = inputs[:, 0].to(like.dtype).contiguous(), layer.past(1, inputs.device)
    groups = [
        SparseGroup(constants, each.begin_loop(like.new_empty(1, size)))
        for each, size in zip(neurons, layer.sizes.values(), strict=True)
        if (constants := each.loop_constants()) is not None
    ]
    by_ends = {each.ends: each for each in learners}
    each = [_weights(layer, ends, by_ends.get(ends)) for ends in layer.delays]
    arguments = current, past[:, 0].contiguous(), groups, each
    if not current.isfinite().all() or not can_run_recurrent(*arguments):
        return None
    for learner in learners:
        learner.updater.events.applying(learner.updater, ("weight",))
    spikes = run_recurrent(*arguments).unsqueeze(1)
    layer.set_past(spikes)
    for neuron, group in zip(neurons, groups, strict=True):
        neuron.end_loop(group.state, len(inputs))
    for ends, weights in zip(layer.delays, each, strict=True):
        if ends in by_ends:
            _finish(rule, layer, by_ends[ends], weights, spikes)
    dtype = inputs.dtype if inputs.is_floating_point() else like.dtype
    kinds = [neuron.spike_dtype or dtype for neuron in neurons]
    return spikes[len(past) :].to(functools.reduce(torch.promote_types, kinds))


def _weights(layer: Populations, ends: Ends, learner: _Learner | None) -> SparseWeights:
    """Returns a connection as the loop has it, with traces if it learns."""
    connection, names = layer.cell(*ends).connection, list(layer.sizes)
    assert isinstance(connection, SparseLinear)
    weight = connection.weight.detach()
    source, target = map(names.index, ends)
    index = connection.starts, connection.outputs
    found = SparseWeights(source, target, layer.delays[ends], *index, weight)
    if learner is None:
        return found
    traces = [weight.new_zeros(layer.sizes[name]) for name in ends]
    for key, trace in zip(_keys(learner.pairs), traces, strict=True):
        left = learner.state.carried.get(key)
        if left is not None and left.shape == (1, len(trace)):
            trace.copy_(left[0])
    return found._replace(rule=learner.pairs, limits=learner.limits, pre=traces[0], post=traces[1])


def _keys(pairs: PairSTDP) -> tuple[StateKey, StateKey]:
    """Returns the names of both traces."""
    mode = "nearest" if pairs.nearest else "cumulative"
    return trace_key("pre", pairs.decay_pre, mode), trace_key("post", pairs.decay_post, mode)


def _finish(
    rule: Rule, layer: Populations, learner: _Learner, weights: SparseWeights, spikes: Tensor
) -> None:
    """Tells of changes that were made, and keeps the traces."""
    state, pairs = learner.state, learner.pairs
    increment_version(weights.weight)
    learner.updater.events.applied(learner.updater, ("weight",), {})
    sizes, longest = list(layer.sizes.values()), layer.longest
    sides = [spikes.split(sizes, 2)[at] for at in (weights.source, weights.target)]
    begin = longest - weights.delay
    pre, post = sides[0][begin : len(spikes) - weights.delay], sides[1][longest:]
    rule.events.evaluated(learner.name, pre, post, {})
    traces, rates = (weights.pre, weights.post), (pairs.rate_post, pairs.rate_pre)
    used = zip(_keys(pairs), traces, rates, strict=True)
    state.carried = {k: trace.unsqueeze(0) for k, trace, rate in used if rate and trace is not None}
    if state.loaded:
        state.check_loaded(state.carried, learner.name)
    state.samples["weight"] = state.samples.get("weight", 0) + len(post)


def suited(
    rule: Rule, layer: Populations, inputs: Tensor, given: Mapping[str, Any]
) -> list[_Learner] | str:
    """Returns the cells that learn, or why the loop does not suit."""
    if given:
        return "the loop of `Populations` takes no input of the rule"
    if inputs.ndim != 3 or inputs.shape[1:] != (1, sum(layer.sizes.values())):
        return "the loop of `Populations` runs one sample, inputs `[T, 1, N]` of all populations"
    for neuron in layer.neurons.values():
        constants = neuron.loop_constants() if isinstance(neuron, Neurons) else None
        if constants is None or constants.losers is not None:
            return "the loop of `Populations` runs `LIF` or `AdaptiveLIF` without inhibition"
    weights = _weights_of(layer)
    if len(weights) < len(layer.connections) or not weights:
        return "the loop of `Populations` runs `SparseLinear` connections without a bias"
    same = inputs.dtype == weights[0].dtype or not inputs.is_floating_point()
    if not same or inputs.is_complex() or not all(each.is_cpu for each in (inputs, *weights)):
        return "the loop takes inputs and weights of one dtype on the CPU"
    modules = list(layer.modules())
    if not only_rule_watches(rule, modules, modules):
        return (
            "something else watches the network, or steps are recorded that were not evaluated, or"
            " modules are in evaluation mode"
        )
    learners = []
    for name, _ in rule.named_cells:
        found = _learner(rule, layer, name)
        if isinstance(found, str):
            return found
        most = len(inputs) ** 2 * sum(map(abs, found.pairs[:2]))
        if most > 1e-6 * torch.finfo(weights[0].dtype).max:
            return "rates are so large that weights may overflow"
        learners.append(found)
    return learners


def _weights_of(layer: Populations) -> list[Tensor]:
    """Returns the weights of connections that suit the loop."""
    return [
        each.weight
        for each in layer.connections.values()
        if isinstance(each, SparseLinear) and each.bias is None
    ]


def only_rule_watches(
    rule: Rule, watched: Sequence[nn.Module], trained: Sequence[nn.Module]
) -> bool:
    """Returns whether modules train, only the rule watches, and no recorded step is waiting."""
    own = list(rule.monitors)
    return (
        rule.recording
        and all(monitor.registered for monitor in own)
        and all(module.training for module in trained)
        and sum(map(hook_count, watched)) == len(own)
        and not any(rule.recorded_steps(name) for name, _ in rule.named_cells)
        and not (torch.is_autocast_enabled("cpu") or is_traced())
    )


def _learner(rule: Rule, layer: Populations, name: str) -> _Learner | str:
    """Returns what the loop needs of a cell of the rule, or why it does not suit."""
    (cell, _), state = rule.get_cell(name), rule.state_of(name)
    ends = next((ends for ends in layer.delays if layer.cell(*ends) == cell), None)
    if ends is None:
        return f"cell `{name}` of the rule is another one than the network's"
    pairs = rule.loop_constants(state.hyperparameters, 1)
    if pairs is None or not pairs.is_plain:
        return f"the loop of `Populations` knows `STDP`, and not this `{type(rule).__name__}`"
    updater = rule.updater_of(name)
    pending: Accumulator = getattr(updater, "weight")  # noqa: B009
    constraints = [type(fn) for fn in updater.constraints_of("weight")]
    low, high = (
        other if limit is None else limit
        for limit, other in zip(updater.limits("weight"), (-math.inf, math.inf), strict=True)
    )
    weight = cell.connection.weight
    if state.hyperparameters.params != ("weight",):
        return "the loop changes the weight only"
    if constraints not in ([], [Clamp]) or pending.bounded or not pending.empty:
        return "the loop knows no bound, no constraint but `Clamp`, and no change that is pending"
    if hook_count(updater) or type(weight) is not nn.Parameter:
        return "the updater has hooks, or its parameter is a special one"
    least, most = weight.aminmax() if weight.numel() else (low, high)
    if not (least >= low and most <= high):  # nor are they if one is not a number
        return "weights are outside the limits of `Clamp`, or not numbers"
    return _Learner(name, ends, state, updater, pairs, (low, high))
