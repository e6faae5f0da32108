"""Simulates a layer over a sequence, and applies what a rule learns as it goes."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_integers, check_tensors
from lightning_accum.distributed.world import processes
from lightning_accum.rules._online_loop import run_compiled
from lightning_accum.rules.base import Rule


def learn_online(
    rule: Rule, layer: nn.Module, inputs: Tensor, *, update_every: int = 1, **given: Any
) -> Tensor:
    r"""Simulates a sequence, and applies what a rule learned after every few steps.

    .. math:: s_t = \text{layer}(x_t;\, w_{t-1}), \qquad
              w_t = w_{t-1} + \Delta w(s_{\le t}, x_{\le t})

    This is classical online learning: the weights that the rule has changed in one step are those
    that the next step uses. Traces pass from step to step, also from sequence to sequence, until
    ``rule.clear()``; the neurons keep their state until they are reset.

    One compiled loop runs the sequence if the layer is :class:`~lightning_accum.Serial` of a linear
    connection and :class:`~lightning_accum.nn.LIF` or :class:`~lightning_accum.nn.AdaptiveLIF`
    neurons on the CPU, the rule is :class:`STDP` of its weight only, the input is spikes,
    ``update_every`` is 1, and the updater has no bound, no constraint but
    :class:`~lightning_accum.Clamp`, and nothing else watches the layer. Otherwise the layer and the
    rule are called step by step, which gives the same result up to rounding.

    Args:
        rule: the rule, with the layer's cell registered.
        layer: the modules of the rule's cells, in training mode, which are called with pieces of
            the sequence: one step ``[B, ...]`` if the rule has ``time_dim=None``, ``[t, B, ...]``
            if it has ``time_dim=0``.
        inputs: ``[T, B, ...]``, time first.
        update_every: number of steps from one update to the next.
        **given: passed unchanged to the rule in each call, such as a ``reward`` ``[B]``; if it
            differs from step to step, call the layer and the rule in a loop instead.

    Returns:
        The layer's output ``[T, B, ...]``.

    Raises:
        ValueError: if ``update_every`` is not positive, ``inputs`` has no time and batch, the rule
            has no cells or belongs to a callback, or several processes train together: they would
            learn apart.

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
    if update_every < 1:
        raise ValueError(
            "Argument `update_every` should be a positive number of steps. Found"
            f" `{update_every = }`."
        )
    if inputs.ndim < 2:
        raise ValueError(
            "Argument `inputs` should be a sequence `[T, B, ...]`, time first. Found shape"
            f" {tuple(inputs.shape)}."
        )
    times = {rule.state_of(name).hyperparameters.time_dim for name, _ in rule.named_cells}
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
    if update_every == 1 and not given:
        spikes = run_compiled(rule, layer, inputs)
        if spikes is not None:
            return spikes
    outputs = []
    for piece in inputs.split(update_every):
        outputs += [layer(piece)] if 0 in times else [layer(step)[None] for step in piece]
        rule(carry=True, **given)
        rule.update()
    return torch.cat(outputs) if outputs else layer(inputs)
