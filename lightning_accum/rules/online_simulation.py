"""Simulates a layer over a sequence, and applies what a rule learns as it goes."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_counts, check_tensors, check_type
from lightning_accum.cells.populations import Populations
from lightning_accum.cells.rule_trainer import RuleTrainer
from lightning_accum.cells.state import CellState
from lightning_accum.distributed.world import processes
from lightning_accum.engine.neuromodulator import modulators_of
from lightning_accum.rules._compiled_online import Unsuited, check_suited, run_compiled


def learn_online(
    trainer: RuleTrainer, layer: nn.Module, inputs: Tensor, *, update_every: int = 1, **given: Any
) -> Tensor:
    r"""Simulates a sequence, and applies what a rule learned after every few steps.

    .. math:: s_t = \text{layer}(x_t;\, w_{t-1}), \qquad
              w_t = w_{t-1} + \Delta w(s_{\le t}, x_{\le t})

    This is classical online learning: the weights that the rule has changed in one step are those
    that the next step uses. Traces pass from step to step, also from sequence to sequence, until
    ``trainer.clear()``; the neurons keep their state until they are reset.

    One compiled loop runs spikes through a :class:`~lightning_accum.Serial` layer of
    :class:`~lightning_accum.nn.LIF` or :class:`~lightning_accum.nn.AdaptiveLIF` neurons on the CPU
    for :class:`STDP` and rules like it, and one sample through
    :class:`~lightning_accum.Populations` for :class:`STDP`, in the time of the spikes, each times
    the synapses of its neuron. Otherwise the layer and the rule are called step by step, which
    gives the same result up to rounding; :func:`why_step_by_step` says why.

    Args:
        trainer: the trainer of a rule, with the layer's cell registered.
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
        TypeError: if ``trainer`` is not a RuleTrainer, or ``inputs`` is not a tensor.
        ValueError: if ``update_every`` is not positive, ``inputs`` has no time and batch, rewards
            of steps are not those of the sequence, the rule has no cells or belongs to a callback,
            or several processes train together, which would learn apart unless they divide
            :class:`~lightning_accum.Populations`, and all run as many steps.

    Example:
        >>> import torch
        >>> from lightning_accum import STDP, Serial, RuleTrainer
        >>> from lightning_accum.nn import LIF, Linear
        >>> layer = Serial(Linear(2, 1, bias=False), LIF(1))
        >>> _ = torch.nn.init.constant_(layer.connection.weight, 0.6)
        >>> trainer = RuleTrainer(STDP(lr_post=0.1, lr_pre=-0.05))
        >>> unit = trainer.register_cell("enc", layer.cell)
        >>> learn_online(trainer, layer, torch.ones(3, 1, 2)).flatten()
        tensor([1., 1., 1.])
        >>> layer.connection.weight.data
        tensor([[0.8904, 0.8904]])
    """
    fits, should = isinstance(trainer, RuleTrainer), "a RuleTrainer, such as `RuleTrainer(rule)`"
    check_type(fits, "trainer", trainer, should)
    check_counts("a positive number of steps", update_every=update_every)
    check_tensors(inputs=inputs)
    if inputs.ndim < 2:
        raise ValueError(
            "Argument `inputs` should be a sequence `[T, B, ...]`, time first. Found shape"
            f" {tuple(inputs.shape)}."
        )
    split = isinstance(layer, Populations) and layer.exchange is not None
    states = _checked_states(trainer, split)
    names = {"reward"}.union(*(modulators_of(state.rule) for state in states)) & given.keys()
    divided = _by_call({name: given[name] for name in names}, inputs, update_every)
    if update_every == 1:
        spikes = run_compiled(trainer, layer, inputs, given)
        if spikes is not None:
            return spikes
    outputs = []
    for at, piece in enumerate(inputs.split(update_every)):
        whole = states[0].options.time_dim == 0
        outputs += [layer(piece)] if whole else [layer(step)[None] for step in piece]
        trainer(carry=True, **{**given, **{name: pieces[at] for name, pieces in divided.items()}})
        trainer.update()
    return torch.cat(outputs) if outputs else layer(inputs)


def _checked_states(trainer: RuleTrainer, split: bool) -> list[CellState]:
    """Returns the states of a trainer's cells, or raises an error if it cannot learn online."""
    states = [trainer.state_of(name) for name, _ in trainer.named_cells]
    times = {state.options.time_dim for state in states}
    if len(times) != 1:
        found = "no cells" if not times else f"cells with `time_dim` among {times}"
        raise ValueError(
            "Argument `trainer` should have cells that are all called in one way. Found"
            f" {found}: register the layer's cell, `trainer.register_cell(name, layer.cell)`."
        )
    if trainer.hosted:
        raise ValueError(
            f"A trainer of `{trainer.title}` should learn online by itself. Found it in a callback"
            " or a FabricCellTrainer, which evaluates and applies it at the end of each batch:"
            " leave it out there, and register the layer's cell with the trainer."
        )
    if processes() > 1 and not split:
        raise ValueError(
            "A rule should learn online in one process, as the weights of several would differ"
            f" after the first step. Found {processes()} processes: apply updates at the end of a"
            " batch, or divide `Populations` over them, with `split=True`."
        )
    if not trainer.training:
        warnings.warn(
            f"The trainer of `{trainer.title}` should be in training mode to learn online. Found"
            " evaluation mode, in which it records nothing: call `train()` on the rule, or the"
            " layer itself if nothing should be learned.",
            RuntimeWarning,
            stacklevel=3,
        )
    return states


def _by_call(
    given: dict[str, Any], inputs: Tensor, update_every: int
) -> dict[str, tuple[Tensor, ...]]:
    """Returns what belongs to steps, divided among the calls, or raises if it does not fit."""
    (steps, batch), found = inputs.shape[:2], {}
    for name, value in given.items():
        if not isinstance(value, Tensor) or value.ndim != 2:
            continue
        if value.shape == (steps, batch):
            found[name] = value.split(update_every)
        elif len(value) not in (1, batch, update_every):
            raise ValueError(
                f"Argument `{name}` should be a number, or a tensor [B] or [T, B] of shape"
                f" [{batch}] or {[steps, batch]}. Found {list(value.shape)}: give a value for each"
                " step and sample of the sequence."
            )
    return found


def why_step_by_step(
    trainer: RuleTrainer, layer: nn.Module, inputs: Tensor, *, update_every: int = 1, **given: Any
) -> str | None:
    """Returns why :func:`learn_online` calls a layer step by step, ``None`` if one loop runs it.

    The arguments are those of :func:`learn_online`.

    Returns:
        The first reason that was found, as a sentence.

    Example:
        >>> import torch
        >>> from lightning_accum import Oja, Serial, RuleTrainer
        >>> from lightning_accum.nn import LIF, Linear
        >>> layer, trainer = Serial(Linear(2, 1, bias=False), LIF(1)), RuleTrainer(Oja(0.1))
        >>> unit = trainer.register_cell("enc", layer.cell)
        >>> why_step_by_step(trainer, layer, torch.ones(3, 1, 2))
        'the loop knows no `Oja`, whose terms read numbers'
    """
    if update_every != 1:
        return f"the loop updates after every step, and `update_every = {update_every}`"
    try:
        check_suited(trainer, layer, inputs, given)
    except Unsuited as why:
        return str(why)
    return None
