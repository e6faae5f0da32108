"""Simulates a layer over a sequence, and applies what a rule learns as it goes."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_integers, check_tensors, check_value
from lightning_accum.cells.layer import Serial
from lightning_accum.cells.populations import Populations
from lightning_accum.distributed.world import processes
from lightning_accum.nn.linear import Linear
from lightning_accum.nn.neuron import Neurons
from lightning_accum.nn.sparse_linear import SparseLinear
from lightning_accum.rules._learner import WATCHED, Learner, learner_of, only_rule_watches
from lightning_accum.rules.base import Rule
from lightning_accum.rules.neuromodulator import modulators_of
from lightning_accum.rules.online_populations import run_populations, suited
from lightning_accum.sparse.events import SpikeRows
from lightning_accum.sparse.neurons import (
    NeuronState,
    OnlineState,
    PairSTDP,
    SpikingNeurons,
    run_online,
)


def learn_online(
    rule: Rule, layer: nn.Module, inputs: Tensor, *, update_every: int = 1, **given: Any
) -> Tensor:
    r"""Simulates a sequence, and applies what a rule learned after every few steps.

    .. math:: s_t = \text{layer}(x_t;\, w_{t-1}), \qquad
              w_t = w_{t-1} + \Delta w(s_{\le t}, x_{\le t})

    This is classical online learning: the weights that the rule has changed in one step are those
    that the next step uses. Traces pass from step to step, also from sequence to sequence, until
    ``rule.clear()``; the neurons keep their state until they are reset.

    One compiled loop runs the sequence if all of these hold:

    * The layer is :class:`~lightning_accum.Serial`, of a linear connection and
      :class:`~lightning_accum.nn.LIF` or :class:`~lightning_accum.nn.AdaptiveLIF` neurons, on the
      CPU, in float32 or float64; neurons inhibit each other by
      :class:`~lightning_accum.nn.WinnerTakeAll`, or not at all. The input is spikes.
    * The rule is :class:`STDP`, :class:`TripletSTDP`, :class:`WeightDependentSTDP`, :class:`MSTDP`
      or :class:`MSTDPET`, of its weight only, by a sum or mean over the batch. Spikes are paired
      ``"symmetric"``.
    * The updater has no constraint but one :class:`~lightning_accum.Clamp`, and bounds of this
      package only, or none if the rule's changes depend on the weight already.
    * ``update_every`` is 1, and nothing else watches the layer.

    Or the layer is :class:`~lightning_accum.Populations` of the same neurons without inhibition,
    with :class:`~lightning_accum.nn.SparseLinear` connections without a bias, for one sample, and
    the rule is :class:`STDP` without a bound. Then the time is that of the spikes, each times the
    synapses of its neuron.

    Otherwise the layer and the rule are called step by step, which gives the same result up to
    rounding; :func:`why_step_by_step` says why. Threads divide the neurons among them, unless these
    inhibit each other; no result depends on their number.

    Args:
        rule: the rule, with the layer's cell registered.
        layer: the modules of the rule's cells, in training mode, which are called with pieces of
            the sequence: one step ``[B, ...]`` if the rule has ``time_dim=None``, ``[t, B, ...]``
            if it has ``time_dim=0``.
        inputs: ``[T, B, ...]``, time first.
        update_every: number of steps from one update to the next.
        **given: passed unchanged to the rule in each call. A ``reward`` ``[T, B]``, or what
            releases a neuromodulator, has one value for each step and sample of the sequence, and
            is divided among the calls.

    Returns:
        The layer's output ``[T, B, ...]``.

    Raises:
        ValueError: if ``update_every`` is not positive, ``inputs`` has no time and batch, rewards
            of steps are not those of the sequence, the rule has no cells or belongs to a callback,
            or several processes train together: they would learn apart.

    Example:
        >>> import torch
        >>> from lightning_accum import STDP, Serial
        >>> from lightning_accum.nn import LIF, Linear
        >>> layer = Serial(Linear(2, 1, bias=False), LIF(1))
        >>> _ = torch.nn.init.constant_(layer.connection.weight, 0.6)
        >>> rule = STDP(lr_post=0.1, lr_pre=-0.05)
        >>> unit = rule.register_cell("enc", layer.cell)
        >>> learn_online(rule, layer, torch.ones(3, 1, 2)).flatten()
        tensor([1., 1., 1.])
        >>> layer.connection.weight.data
        tensor([[0.8904, 0.8904]])
    """
    check_integers(update_every=update_every)
    check_tensors(inputs=inputs)
    check_value(update_every > 0, "update_every", update_every, "a positive number of steps")
    if inputs.ndim < 2:
        raise ValueError(
            "Argument `inputs` should be a sequence `[T, B, ...]`, time first. Found shape"
            f" {tuple(inputs.shape)}."
        )
    settings = [rule.state_of(name).hyperparameters for name, _ in rule.named_cells]
    times = {h.time_dim for h in settings}
    if len(times) != 1:
        found = "no cells" if not times else f"cells with `time_dim` among {times}"
        raise ValueError(
            "Argument `rule` should have cells that are all called in one way. Found"
            f" {found}: register the layer's cell, `rule.register_cell(name, layer.cell)`."
        )
    if rule.hosted:
        raise ValueError(
            f"A `{type(rule).__name__}` should learn online by itself. Found it in a callback or"
            " a FabricCellTrainer, which evaluates and applies it at the end of each batch: leave"
            " it out there, and register the layer's cell with the rule."
        )
    if processes() > 1:
        raise ValueError(
            "A rule should learn online in one process, as the weights of several would differ"
            f" after the first step. Found {processes()} processes: apply updates at the end of a"
            " batch."
        )
    if not rule.training:
        warnings.warn(
            f"A `{type(rule).__name__}` should be in training mode to learn online. Found"
            " evaluation mode, in which it records nothing: call `train()` on the rule, or the"
            " layer itself if nothing should be learned.",
            RuntimeWarning,
            stacklevel=2,
        )
    divided = {"reward"}.union(*map(modulators_of, settings)) & given.keys()
    for name in divided:
        _check_steps(name, given[name], inputs, update_every)
    if update_every == 1:
        spikes = run_compiled(rule, layer, inputs, given)
        if spikes is not None:
            return spikes
    outputs = []
    for at, piece in enumerate(inputs.split(update_every)):
        outputs += [layer(piece)] if 0 in times else [layer(step)[None] for step in piece]
        rule(carry=True, **_given_in(given, divided, inputs, at * update_every, len(piece)))
        rule.update()
    return torch.cat(outputs) if outputs else layer(inputs)


def _check_steps(name: str, value: object, inputs: Tensor, update_every: int) -> None:
    """Raises a ``ValueError`` if values of steps are not those of the sequence, nor of a call."""
    steps, batch = inputs.shape[:2]
    if not isinstance(value, Tensor) or value.ndim != 2 or value.shape == (steps, batch):
        return
    if len(value) not in (1, batch, update_every):
        raise ValueError(
            f"Argument `{name}` should be a number, or a tensor [B] or [T, B] of shape [{batch}] or"
            f" {[steps, batch]}. Found {list(value.shape)}: give a value for each step and sample"
            " of the sequence."
        )


def _given_in(
    given: dict[str, Any], divided: set[str], inputs: Tensor, start: int, steps: int
) -> dict[str, Any]:
    """Returns what a rule is given in the call for some steps, such as the rewards of these."""
    found = {}
    for name, each in given.items():
        whole = name in divided and isinstance(each, Tensor) and each.shape == inputs.shape[:2]
        found[name] = each[start : start + steps] if whole else each
    return found


def why_step_by_step(
    rule: Rule, layer: nn.Module, inputs: Tensor, *, update_every: int = 1, **given: Any
) -> str | None:
    """Returns why :func:`learn_online` calls a layer step by step, ``None`` if one loop runs it.

    The arguments are those of :func:`learn_online`.

    Returns:
        The first reason that was found, as a sentence.

    Example:
        >>> import torch
        >>> from lightning_accum import Oja, Serial
        >>> from lightning_accum.nn import LIF, Linear
        >>> layer, rule = Serial(Linear(2, 1, bias=False), LIF(1)), Oja(0.1)
        >>> unit = rule.register_cell("enc", layer.cell)
        >>> why_step_by_step(rule, layer, torch.ones(3, 1, 2))
        'the loop knows no `Oja`'
    """
    found: object
    if update_every != 1:
        found = f"the loop updates after every step, and `update_every = {update_every}`"
    elif isinstance(layer, Populations):
        found = suited(rule, layer, inputs, given)
    else:
        found = _suited(rule, layer, inputs, given)
    return found if isinstance(found, str) else None


# ------------------------------------------------------------- the compiled loop, if it suits
@torch.no_grad()
def run_compiled(
    rule: Rule, layer: nn.Module, inputs: Tensor, given: dict[str, Any]
) -> Tensor | None:
    """Simulates a layer and learns after each step; ``None`` without a change if it cannot."""
    if isinstance(layer, Populations):
        return run_populations(rule, layer, inputs, given)
    found = _suited(rule, layer, inputs, given)
    if isinstance(found, str):
        return None
    connection, neuron, learner, raster, neurons, reward = found
    weight = connection.weight
    steps, batch, size = inputs.shape
    before = OnlineState(
        *neuron.begin_loop(weight.new_empty(batch, len(weight))),
        **learner.left(batch, size, len(weight), weight),
    )
    limits = None if learner.limits == (-math.inf, math.inf) else learner.limits
    done = run_online(
        raster, weight, connection.bias, neurons, learner.pairs, before, limits, reward
    )
    if done is None:
        return None
    # a NaN is both the least and the largest value; `isfinite` would take a tenth of a short loop
    if done[1].numel() and not all(map(torch.isfinite, done[1].aminmax())):
        return None
    spikes, transposed, after = done
    learner.updater.events.applying(learner.updater, ("weight",))
    weight.copy_(transposed.t())
    neuron.end_loop(NeuronState(after.v, after.hold, after.theta), steps)
    learner.finish(rule, raster, spikes, given, after._asdict())
    dtype = inputs.dtype if inputs.is_floating_point() else weight.dtype
    return spikes.to(neuron.spike_dtype or dtype)


def _suited(
    rule: Rule, layer: nn.Module, inputs: Tensor, given: dict[str, Any]
) -> tuple[nn.Linear, Neurons, Learner, Tensor, SpikingNeurons, Tensor | None] | str:
    """Returns the layer, its learner, spikes, constants and rewards, or why it does not suit."""
    cells = list(rule.named_cells)
    if len(cells) != 1 or not isinstance(layer, Serial) or inputs.ndim != 3:
        return "the loop runs one cell, a `Serial` that takes inputs `[T, B, N]`"
    ((name, (cell, _)),) = cells
    connection, neuron = layer.connection, layer.neuron
    if type(connection) not in (nn.Linear, Linear) or not isinstance(neuron, Neurons):
        kinds = f"`{type(connection).__name__}` and `{type(neuron).__name__}`"
        return (
            f"the loop runs `Linear` and `LIF` or `AdaptiveLIF` neurons, and finds {kinds}"
            + ", which it runs in `Populations`" * isinstance(connection, SparseLinear)
        )
    if cell.connection is not connection or cell.neuron is not neuron:
        return "the rule's cell is another one than the layer's"
    assert isinstance(connection, nn.Linear)
    if inputs.shape[2] != connection.in_features or neuron.size != (connection.out_features,):
        return "the sizes of inputs, connection and neurons differ"
    neurons, raster = neuron.loop_constants(), _as_raster(inputs)
    if neurons is None:
        return "the loop knows no inhibition but `WinnerTakeAll`"
    learner = learner_of(rule, name, inputs.shape[1])
    if isinstance(learner, str):
        return learner
    if raster is None:
        return "the loop takes spikes on the CPU"
    same = connection.bias is None or connection.bias.dtype == connection.weight.dtype
    if not same or not only_rule_watches(rule, (layer, connection, neuron)):
        return WATCHED
    reward = _reward(learner.pairs, given, inputs.shape[:2])
    if isinstance(reward, str):
        return reward
    return connection, neuron, learner, raster, neurons, reward


def _reward(pairs: PairSTDP, given: dict[str, Any], shape: torch.Size) -> Tensor | str | None:
    """Returns the rewards ``[T, B]`` if the rule takes any, or why the loop does not take them."""
    if pairs.reward is None:
        return "the rule is given what it does not use" if given else None
    reward = given.get("reward")
    if isinstance(reward, (int, float)):
        reward = torch.tensor(float(reward), dtype=torch.float64)
    if len(given) == 1 and isinstance(reward, Tensor) and not reward.is_complex():
        fits = reward.shape in (torch.Size([]), shape[1:], (1, *shape[1:]), shape)
        if fits and bool(reward.isfinite().all()):
            return reward.detach().to("cpu", torch.float64).expand(shape) * pairs.reward
    return "the rule should be given a reward of finite numbers, and nothing else"


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
