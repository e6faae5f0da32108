"""The compiled loops, which simulate a layer or a network and learn in each step."""

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

from lightning_accum._compat.torch_internals import hook_count, is_traced
from lightning_accum.cells.layer import Serial
from lightning_accum.cells.populations import Ends, Populations, all_agree
from lightning_accum.cells.rule_trainer import RuleTrainer
from lightning_accum.cells.state import CellState
from lightning_accum.cells.trainer import recorded_steps
from lightning_accum.cells.window_evaluation import named_terms_of
from lightning_accum.engine.neuromodulator import modulators_of
from lightning_accum.engine.state_keys import StateKey, trace_key
from lightning_accum.nn.linear import Linear
from lightning_accum.nn.neuron import Neurons
from lightning_accum.nn.sparse_linear import SparseLinear
from lightning_accum.observe.hooks import watching
from lightning_accum.rules.loop_terms import loop_terms, terms_in
from lightning_accum.rules.reward_modulation import eligibility_key
from lightning_accum.sparse import online_loop as online
from lightning_accum.sparse import recurrent
from lightning_accum.sparse.events import SpikeRows
from lightning_accum.sparse.neurons import NeuronState, SpikingNeurons
from lightning_accum.updates import Clamp, Updater


class Unsuited(Exception):
    """Says why no loop runs a layer."""


def _need(suits: bool, why: str) -> None:
    """Raises an :class:`Unsuited` that says why, unless a loop suits."""
    if not suits:
        raise Unsuited(why)


@torch.no_grad()
def run_compiled(
    rule: RuleTrainer, layer: nn.Module, inputs: Tensor, given: Mapping[str, Any]
) -> Tensor | None:
    """Simulates a layer and learns after each step; ``None`` without a change if it cannot."""
    try:
        if isinstance(layer, Populations):
            return _run_populations(rule, layer, inputs, given)
        return _run_layer(rule, layer, inputs, given)
    except Unsuited:
        return None


def check_suited(
    rule: RuleTrainer, layer: nn.Module, inputs: Tensor, given: Mapping[str, Any]
) -> None:
    """Raises an :class:`Unsuited` that says why, unless a loop suits."""
    if isinstance(layer, Populations):
        _suited_populations(rule, layer, inputs, given)
    else:
        _suited_layer(rule, layer, inputs, given)


@dataclass(frozen=True)
class _Learner:
    """A cell of a rule that suits a loop."""

    name: str
    state: CellState
    updater: Updater
    terms: online.LoopTerms
    limits: tuple[float, float]  # of the weight

    def left(self, batch: int, inputs: int, outputs: int, like: Tensor) -> dict[str, list[Tensor]]:
        """Returns what the last window left, by name; zeros for nothing, or of other samples."""
        shapes: dict[str, tuple[int, ...]] = {"pre": (batch, inputs), "post": (batch, outputs)}
        shapes["eligible"] = batch, outputs, inputs
        carried = self.state.carried
        return {
            name: [
                value
                if (value := carried.get(key)) is not None and value.shape == shapes[name]
                else like.new_zeros(shapes[name])
                for key, _ in keys
            ]
            for name, keys in _keys(self.terms).items()
        }

    def finish(
        self,
        rule: RuleTrainer,
        pre: Tensor,
        post: Tensor,
        given: Mapping[str, Any],
        left: Mapping[str, Sequence[Tensor]],
    ) -> None:
        """Tells of changes that were made, and keeps what is left for the next window."""
        state = self.state
        self.updater.changes.events.applied(self.updater, ("weight",), {})
        rule.events.evaluated(self.name, pre, post, given)
        rule.unread = []
        state.carried = {
            key: value
            for name, keys in _keys(self.terms).items()
            for (key, used), value in zip(keys, left[name], strict=True)
            if used
        }
        if state.loaded:
            state.check_loaded(state.carried, self.name)
        state.samples["weight"] = state.samples.get("weight", 0) + post.shape[:2].numel()


@functools.lru_cache(64)
def _keys(of: online.LoopTerms) -> dict[str, list[tuple[StateKey, bool]]]:
    """Returns the keys of what passes on, by name, and whether the terms use it."""
    tc, keys = of.tc_eligibility, {}
    for side, traces, on_post in ("pre", of.pre, True), ("post", of.post, False):
        read = {t.other for t in of.terms if t.on_post == on_post and (tc or t.rate)}
        read |= {t.own for t in of.terms if t.on_post != on_post and t.own is not None}
        modes = ["nearest" if t.nearest else "cumulative" for t in traces]
        each = enumerate(zip(traces, modes, strict=True))
        keys[side] = [
            (trace_key(side, t.decay, mode), at in read and t.passes) for at, (t, mode) in each
        ]
    if tc is not None:
        rates = [term.rate for term in of.terms]
        used = {"pos": max(rates) >= 0, "neg": min(rates) < 0}
        keys["eligible"] = [(eligibility_key("weight", part, tc), used[part]) for part in used]
    return keys


def _learner_of(rule: RuleTrainer, name: str, batch: int) -> _Learner:
    """Returns what a loop needs of a cell of the rule."""
    (cell, _), state, updater = rule.get_cell(name), rule.state_of(name), rule.updater_of(name)
    h, weight = state.options, cell.connection.weight
    why = "the loop knows no reduction but the sum and the mean over the batch, and"
    why += f" `batch_reduction = {h.batch_reduction!r}`"
    _need(state.reduction.adds, why)
    _need(h.backend != "plain", "the loop is compiled, and `backend = 'plain'`")
    _need(h.params == ("weight",), "the loop changes the weight only")
    named = named_terms_of(cell.connection, state).get("weight")
    share = None if modulators_of(state.rule) else state.reduction.share(batch)
    pairs = loop_terms(named, share, h.dt)
    if pairs is None:
        raise Unsuited(f"the loop knows no `{rule.title}`{_unknown(state, cell.connection)}")
    pending = updater.changes.pending["weight"]
    constraints = updater.changes.constraints.of("weight")
    clamps = [fn for fn in constraints if type(fn) is Clamp]
    _need(len(clamps) == len(constraints) < 2, "the loop knows no constraint but `Clamp`")
    if type(weight) is not nn.Parameter or not weight.is_cpu:
        raise Unsuited("the loop changes a parameter on the CPU")
    free = not hook_count(updater) and not len(pending)
    _need(free, "the updater has hooks, or changes that are not applied")
    low, high = clamps[0].weight_limits if clamps else (None, None)
    low, high = -math.inf if low is None else low, math.inf if high is None else high
    within = _are_within(weight, low, high)
    _need(within, "weights are outside the limits of `Clamp`, or not numbers")
    rooms = pending.bounds.rooms
    if rooms is None:
        raise Unsuited("the loop knows the bounds of this package only")
    if any(rooms):
        why = "the loop knows no bound on changes that depend on the weight already"
        _need(not (pairs.rise or pairs.fall), why)
        pairs = pairs._replace(rise=rooms[0], fall=rooms[1])
    return _Learner(name, state, updater, pairs, (low, high))


def _are_within(weight: Tensor, low: float = -math.inf, high: float = math.inf) -> bool:
    """Returns whether all weights are numbers between limits, and their sum does not overflow."""
    weight = weight.detach()
    if not math.isfinite(weight.sum()):
        return False
    if not weight.numel() or (low, high) == (-math.inf, math.inf):
        return True
    least, most = weight.aminmax()
    return bool(least >= low and most <= high)


def _unknown(state: CellState, connection: nn.Module) -> str:
    """Returns what of a rule no loop knows."""
    if modulators_of(state.rule):
        return " with a `Neuromodulator`"
    named = named_terms_of(connection, state).get("weight")
    if named is None:
        return ", whose terms read numbers"
    terms = [*enumerate(terms_in(named), 1)]
    for at, term in terms:
        if term.rate and loop_terms([term], 1.0, state.options.dt) is None:
            if getattr(term, "transform", None) is not None:
                return f", whose term {at} has a `transform`"
            what = "a spike times a trace of the other side, after the spikes of the step"
            return f", whose term {at} is not {what}"
    rates = any(term.rate for _, term in terms)
    return ", whose terms have several rooms" if rates else ", whose rates are all 0"


def _check_watched(rule: RuleTrainer, modules: Sequence[nn.Module], same: bool = True) -> None:
    """Checks that modules train, only the rule watches them, and no recorded step is waiting."""
    own = list(rule.monitors)
    alone = (
        rule.recording
        and all(monitor.registered for monitor in own)
        and all(module.training for module in modules)
        and sum(map(watching, modules)) == len(own)
        and not any(recorded_steps(rule, name) for name, _ in rule.named_cells)
        and not (torch.is_autocast_enabled("cpu") or is_traced())
    )
    why = "something else watches the layer, or steps are recorded that were not evaluated, or"
    _need(same and alone, f"{why} modules are in evaluation mode")


# ------------------------------------------------------------------ one layer
def _run_layer(
    rule: RuleTrainer, layer: nn.Module, inputs: Tensor, given: Mapping[str, Any]
) -> Tensor | None:
    """Simulates a layer and learns after each step; ``None`` without a change if it cannot."""
    connection, neuron, learner, raster, neurons, reward = _suited_layer(rule, layer, inputs, given)
    weight = connection.weight
    steps, batch, size = inputs.shape
    state = neuron.begin_loop(weight.new_empty(batch, len(weight)))
    left = learner.left(batch, size, len(weight), weight)
    before = online.OnlineState(*state, *left.values())
    limits = None if learner.limits == (-math.inf, math.inf) else learner.limits
    done = online.run_online(
        raster, weight, connection.bias, neurons, learner.terms, before, limits, reward
    )
    if done is None or not _are_within(done[1]):
        return None
    spikes, learned, after = done
    learner.updater.changes.events.applying(learner.updater, ("weight",))
    weight.copy_(learned)
    neuron.end_loop(NeuronState(after.v, after.hold, after.theta), steps)
    learner.finish(rule, raster, spikes, given, after._asdict())
    dtype = inputs.dtype if inputs.is_floating_point() else weight.dtype
    return spikes.to(neuron.spike_dtype or dtype)


def _suited_layer(
    rule: RuleTrainer, layer: nn.Module, inputs: Tensor, given: Mapping[str, Any]
) -> tuple[nn.Linear, Neurons, _Learner, Tensor, SpikingNeurons, Tensor | None]:
    """Returns the layer, its learner, spikes, constants and rewards."""
    cells = list(rule.named_cells)
    if len(cells) != 1 or not isinstance(layer, Serial) or inputs.ndim != 3:
        raise Unsuited("the loop runs one cell, a `Serial` that takes inputs `[T, B, N]`")
    ((name, (cell, _)),) = cells
    connection, neuron = layer.connection, layer.neuron
    if type(connection) not in (nn.Linear, Linear) or not isinstance(neuron, Neurons):
        kinds = f"`{type(connection).__name__}` and `{type(neuron).__name__}`"
        raise Unsuited(
            f"the loop runs `Linear` and `LIF` or `AdaptiveLIF` neurons, and finds {kinds}"
            + ", which it runs in `Populations`" * isinstance(connection, SparseLinear)
        )
    _need(cell == layer.cell, "the rule's cell is another one than the layer's")
    assert isinstance(connection, nn.Linear)
    fits = inputs.shape[2] == connection.in_features and neuron.size == (connection.out_features,)
    _need(fits, "the sizes of inputs, connection and neurons differ")
    neurons = neuron.loop_constants()
    if neurons is None:
        raise Unsuited("the loop knows no inhibition but `WinnerTakeAll`")
    learner, raster = _learner_of(rule, name, inputs.shape[1]), _as_raster(inputs)
    same = connection.bias is None or connection.bias.dtype == connection.weight.dtype
    _check_watched(rule, (layer, connection, neuron), same)
    reward = _reward(learner.terms, given, inputs.shape[:2])
    return connection, neuron, learner, raster, neurons, reward


def _reward(pairs: online.LoopTerms, given: Mapping[str, Any], shape: torch.Size) -> Tensor | None:
    """Returns the rewards ``[T, B]`` if the rule takes any."""
    if pairs.reward is None:
        _need(not given, "the rule is given what it does not use")
        return None
    reward = given.get("reward")
    if isinstance(reward, (int, float)):
        reward = torch.tensor(float(reward), dtype=torch.float64)
    if len(given) == 1 and isinstance(reward, Tensor) and not reward.is_complex():
        fits = reward.shape in (torch.Size([]), shape[1:], (1, *shape[1:]), shape)
        if fits and bool(reward.isfinite().all()):
            return reward.detach().to("cpu", torch.float64).expand(shape) * pairs.reward
    raise Unsuited("the rule should be given a reward of finite numbers, and nothing else")


def _as_raster(inputs: Tensor) -> Tensor:
    """Returns the input, which should be spikes on the CPU, as booleans."""
    raster, why = inputs, "the loop takes spikes on the CPU"
    _need(inputs.is_cpu and not inputs.is_complex(), why)
    if inputs.dtype != torch.bool:
        raster = torch.empty(inputs.shape, dtype=torch.bool)
        found = SpikeRows(raster[None], inputs.dtype).write(0, inputs)
        if found is None:
            raster = inputs != 0
            found = 0 if bool((inputs == raster).all()) else -1
        _need(found >= 0, why)
    return raster


# ------------------------------------------------------------------ several populations
# Input [T, N] of own neurons, past spikes [D, M] of all processes, populations and connections.
_Arguments: TypeAlias = tuple[
    Tensor, Tensor, list[recurrent.SparseGroup], list[recurrent.SparseWeights]
]


def _ready_network(
    rule: RuleTrainer, layer: Populations, inputs: Tensor, given: Mapping[str, Any]
) -> tuple[dict[Ends, _Learner], list[Neurons], _Arguments] | None:
    """Returns who learns, and what the loop takes; ``None`` if it does not suit."""
    try:
        learners = _suited_populations(rule, layer, inputs, given)
    except Unsuited:
        return None
    neurons: list[Neurons] = list(layer.neurons.values())  # type: ignore[arg-type]
    like = _weights_of(layer)[0].new_empty(1, 0)
    current, past = inputs[:, 0].to(like.dtype).contiguous(), layer.past(1, inputs.device)
    groups = [
        recurrent.SparseGroup(
            constants, each.begin_loop(like.new_empty(1, size)), layer.totals[name], own.start
        )
        for each, (name, size), own in zip(
            neurons, layer.sizes.items(), layer.own.values(), strict=True
        )
        if (constants := each.loop_constants()) is not None
    ]
    each = [_weights(layer, ends, learners.get(ends)) for ends in layer.delays]
    arguments = current, past[:, 0].contiguous(), groups, each
    if not current.isfinite().all() or not recurrent.can_run_recurrent(*arguments):
        return None
    return learners, neurons, arguments


def _run_populations(
    rule: RuleTrainer, layer: Populations, inputs: Tensor, given: Mapping[str, Any]
) -> Tensor | None:
    """Simulates a network and learns after each step; ``None`` without a change if it cannot."""
    ready = _ready_network(rule, layer, inputs, given)
    if not all_agree(layer, ready is not None, len(inputs)) or ready is None:
        return None
    learners, neurons, (current, past, groups, each) = ready
    for learner in learners.values():
        learner.updater.changes.events.applying(learner.updater, ("weight",))
    spikes = recurrent.run_recurrent(current, past, groups, each, layer.exchange).unsqueeze(1)
    layer.set_past(spikes)
    for neuron, group in zip(neurons, groups, strict=True):
        neuron.end_loop(group.state, len(inputs))
    of = dict(zip(layer.sizes, spikes.split([*layer.totals.values()], 2), strict=True))
    own = {name: of[name][len(past) :, :, r.start : r.stop] for name, r in layer.own.items()}
    for (ends, delay), weights in zip(layer.delays.items(), each, strict=True):
        if (learns := learners.get(ends)) is not None:
            increment_version(weights.weight)
            pre = of[ends[0]][len(past) - delay : len(spikes) - delay]
            sides = zip(_keys(learns.terms).items(), (weights.pre, weights.post), strict=True)
            left = {
                side: [value[None] for _ in keys if value is not None]
                for (side, keys), value in sides
            }
            learns.finish(rule, pre, own[ends[1]], {}, left)
    like = groups[0].state.v
    dtype = inputs.dtype if inputs.is_floating_point() else like.dtype
    kinds = [neuron.spike_dtype or dtype for neuron in neurons]
    found = torch.cat([*own.values()], 2) if layer.exchange else spikes[len(past) :]
    return found.to(functools.reduce(torch.promote_types, kinds))


def _weights(layer: Populations, ends: Ends, learner: _Learner | None) -> recurrent.SparseWeights:
    """Returns a connection as the loop has it, with traces if it learns."""
    connection, names = layer.cell(*ends).connection, list(layer.sizes)
    assert isinstance(connection, SparseLinear)
    weight = connection.weight.detach()
    source, target = map(names.index, ends[:2])
    index = connection.starts, connection.outputs
    found = recurrent.SparseWeights(source, target, layer.delays[ends], *index, weight)
    if learner is None:
        return found
    sizes = layer.totals[ends[0]], layer.sizes[ends[1]]
    left = learner.left(1, *sizes, weight)
    pre, post = (  # zeros for a side without a trace
        (left[side] or [weight.new_zeros(1, size)])[0][0].to(weight.dtype, copy=True)
        for side, size in zip(("pre", "post"), sizes, strict=True)
    )
    return found._replace(
        rule=recurrent.pairs_of(learner.terms), limits=learner.limits, pre=pre, post=post
    )


def _suited_populations(
    rule: RuleTrainer, layer: Populations, inputs: Tensor, given: Mapping[str, Any]
) -> dict[Ends, _Learner]:
    """Returns the cells that learn."""
    _need(not given, "the loop of `Populations` takes no input of the rule")
    fits = inputs.ndim == 3 and inputs.shape[1:] == (1, sum(layer.sizes.values()))
    why = "the loop of `Populations` runs one sample, inputs `[T, 1, N]` of all populations"
    _need(fits, why)
    for neuron in layer.neurons.values():
        constants = neuron.loop_constants() if isinstance(neuron, Neurons) else None
        why = "the loop of `Populations` runs `LIF` or `AdaptiveLIF` without inhibition"
        _need(constants is not None and constants.losers == -1, why)
    weights = _weights_of(layer)
    why = "the loop of `Populations` runs `SparseLinear` connections without a bias"
    _need(0 < len(weights) == len(layer.connections), why)
    same = inputs.dtype == weights[0].dtype or not inputs.is_floating_point()
    same = same and not inputs.is_complex() and all(each.is_cpu for each in (inputs, *weights))
    _need(same, "the loop takes inputs and weights of one dtype on the CPU")
    _check_watched(rule, list(layer.modules()))
    learners = {}
    for name, (cell, _) in rule.named_cells:
        ends = next((ends for ends in layer.delays if layer.cell(*ends) == cell), None)
        if ends is None:
            raise Unsuited(f"cell `{name}` of the rule is another one than the network's")
        found = learners[ends] = _learner_of(rule, name, 1)
        why = f"the loop of `Populations` knows no bound, and no `{rule.title}`"
        _need(recurrent.pairs_of(found.terms) is not None, why)
        most = len(inputs) ** 2 * sum(abs(term.rate) for term in found.terms.terms)
        small = most <= 1e-6 * torch.finfo(weights[0].dtype).max
        _need(small, "rates are so large that weights may overflow")
    return learners


def _weights_of(layer: Populations) -> list[Tensor]:
    """Returns the weights of connections that suit the loop."""
    return [
        each.weight
        for each in layer.connections.values()
        if isinstance(each, SparseLinear) and each.bias is None
    ]
