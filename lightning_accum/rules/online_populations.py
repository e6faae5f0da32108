"""Simulates a recurrent network over a sequence, and learns as it goes, in one compiled loop."""

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from lightning_accum.cells.populations import Ends, Populations
from lightning_accum.nn.neuron import Neurons
from lightning_accum.nn.sparse_linear import SparseLinear
from lightning_accum.rules._learner import WATCHED, Learner, learner_of, only_rule_watches
from lightning_accum.rules.base import Rule
from lightning_accum.sparse.recurrent import (
    SparseGroup,
    SparseWeights,
    can_run_recurrent,
    run_recurrent,
)


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
    each = [_weights(layer, ends, learners.get(ends)) for ends in layer.delays]
    arguments = current, past[:, 0].contiguous(), groups, each
    if not current.isfinite().all() or not can_run_recurrent(*arguments):
        return None
    for learner in learners.values():
        learner.updater.events.applying(learner.updater, ("weight",))
    spikes = run_recurrent(*arguments).unsqueeze(1)
    layer.set_past(spikes)
    for neuron, group in zip(neurons, groups, strict=True):
        neuron.end_loop(group.state, len(inputs))
    of = dict(zip(layer.sizes, spikes.split([*layer.sizes.values()], 2), strict=True))
    for (ends, delay), weights in zip(layer.delays.items(), each, strict=True):
        if (learns := learners.get(ends)) is not None:
            increment_version(weights.weight)
            pre = of[ends[0]][len(past) - delay : len(spikes) - delay]
            left = {side: getattr(weights, side).unsqueeze(0) for side in ("pre", "post")}
            learns.finish(rule, pre, of[ends[1]][len(past) :], {}, left)
    dtype = inputs.dtype if inputs.is_floating_point() else like.dtype
    kinds = [neuron.spike_dtype or dtype for neuron in neurons]
    return spikes[len(past) :].to(functools.reduce(torch.promote_types, kinds))


def _weights(layer: Populations, ends: Ends, learner: Learner | None) -> SparseWeights:
    """Returns a connection as the loop has it, with traces if it learns."""
    connection, names = layer.cell(*ends).connection, list(layer.sizes)
    assert isinstance(connection, SparseLinear)
    weight = connection.weight.detach()
    source, target = map(names.index, ends)
    index = connection.starts, connection.outputs
    found = SparseWeights(source, target, layer.delays[ends], *index, weight)
    if learner is None:
        return found
    left = learner.left(1, layer.sizes[ends[0]], layer.sizes[ends[1]], weight)
    pre, post = (left[side][0].to(weight.dtype, copy=True) for side in ("pre", "post"))
    return found._replace(rule=learner.pairs, limits=learner.limits, pre=pre, post=post)


def suited(
    rule: Rule, layer: Populations, inputs: Tensor, given: Mapping[str, Any]
) -> dict[Ends, Learner] | str:
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
    if not only_rule_watches(rule, list(layer.modules())):
        return WATCHED
    learners = {}
    for name, (cell, _) in rule.named_cells:
        ends = next((ends for ends in layer.delays if layer.cell(*ends) == cell), None)
        found = learner_of(rule, name, 1)
        if ends is None:
            return f"cell `{name}` of the rule is another one than the network's"
        if isinstance(found, str):
            return found
        if not found.pairs.is_plain:
            return f"the loop of `Populations` knows no bound, and no `{type(rule).__name__}`"
        most = len(inputs) ** 2 * sum(map(abs, found.pairs[:2]))
        if most > 1e-6 * torch.finfo(weights[0].dtype).max:
            return "rates are so large that weights may overflow"
        learners[ends] = found
    return learners


def _weights_of(layer: Populations) -> list[Tensor]:
    """Returns the weights of connections that suit the loop."""
    return [
        each.weight
        for each in layer.connections.values()
        if isinstance(each, SparseLinear) and each.bias is None
    ]
