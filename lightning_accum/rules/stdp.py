"""Pair-based spike-timing-dependent plasticity."""

from dataclasses import field
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

import torch
from torch import Tensor

from lightning_accum._checks import check_choice, check_value
from lightning_accum.engine.activity_window import Window
from lightning_accum.engine.rule import Rule
from lightning_accum.engine.state_keys import StateKey
from lightning_accum.engine.terms import Change, CustomChange, Parts, Term, added
from lightning_accum.functional.traces import TraceMode, decay_factor

Pairing: TypeAlias = Literal["symmetric", "presynaptic", "reduced"]  # which spikes are nearest


class STDP(Rule):
    r"""Pair-based spike-timing-dependent plasticity.

    .. math::
        \Delta w = \eta_\text{post} \sum_t s_\text{post}(t)\, x_\text{pre}(t)
                 + \eta_\text{pre} \sum_t x_\text{post}(t)\, s_\text{pre}(t)

    with spikes :math:`s` and their exponential traces :math:`x`, into which a spike counts in the
    step in which it happens. A rate's sign says to which part its term goes: the rule is Hebbian if
    ``lr_post > 0 > lr_pre``, and anti-Hebbian if ``lr_post < 0 < lr_pre``.

    Args:
        lr_post: rate on a postsynaptic spike, times the presynaptic trace.
        lr_pre: rate on a presynaptic spike, times the postsynaptic trace.
        tc_post: time constant of the postsynaptic trace, in ms.
        tc_pre: time constant of the presynaptic trace, in ms.
        trace_mode: ``"cumulative"``, every pair of spikes counts, or ``"nearest"``, the nearest.
        pairing: which pairs are nearest. ``"symmetric"``: each spike, and the latest one of the
            other side. ``"presynaptic"``, centred on presynaptic spikes: each of them, and the
            latest and the next postsynaptic one. ``"reduced"`` symmetric: each spike, and the
            latest one of the other side, if no other spike of this synapse lies between the two.
            The last two keep two values for each sample and synapse, and visit all in each step.

    Raises:
        ValueError: if ``pairing`` is not ``"symmetric"``, and ``trace_mode`` not ``"nearest"``, or
            the parameter is not a matrix ``[out, in]``.

    Example:
        >>> import torch
        >>> from lightning_accum import STDP, Serial, RuleTrainer
        >>> layer = Serial(torch.nn.Linear(1, 1, bias=False), torch.nn.Identity())
        >>> _ = torch.nn.init.ones_(layer.connection.weight)
        >>> stdp = RuleTrainer(STDP(lr_post=0.1, lr_pre=-0.1, tc_post=20.0, tc_pre=20.0))
        >>> unit = stdp.register_cell("enc", layer.cell)
        >>> for spike in (1.0, 0.0, 1.0):
        ...     _ = layer(torch.tensor([[spike]]))
        >>> stdp()
        >>> unit.cell.updater.weight.pos
        tensor([[0.2905]])
        >>> stdp.update()

    Source:
        Bi & Poo 1998, doi:10.1523/JNEUROSCI.18-24-10464.1998; Song, Miller & Abbott 2000,
        doi:10.1038/78829; the online form with traces: Morrison, Diesmann & Gerstner 2008,
        doi:10.1007/s00422-008-0233-1, eq. 4, and fig. 7 for the pairings.
    """

    lr_post: float
    lr_pre: float
    tc_post: float = 20.0
    tc_pre: float = 20.0
    trace_mode: TraceMode = field(default="cumulative", kw_only=True)
    pairing: Pairing = field(default="symmetric", kw_only=True)

    def check(self) -> None:
        """Raises an error if hyperparameters make no sense."""
        check_choice("pairing", self.pairing, get_args(Pairing))
        fits = self.pairing == "symmetric" or self.trace_mode == "nearest"
        should = f"'nearest' for `pairing = {self.pairing!r}`, which says which spikes are nearest"
        check_value(fits, "trace_mode", self.trace_mode, should)

    def terms(self, window: Window) -> tuple[Change, ...]:
        """Returns a term for the spikes of each side."""
        return pairs(self, window) if self.pairing == "symmetric" else (_SinglePairs(window, self),)


def pairs(rule: Any, window: Window) -> tuple[Term, Term]:
    """Returns a term for the spikes of each side, times the trace of the other side."""
    mode = rule.trace_mode
    return (
        Term(rule.lr_post, window.post, window.pre.trace(rule.tc_pre, mode)),
        Term(rule.lr_pre, window.post.trace(rule.tc_post, mode), window.pre),
    )


class _SinglePairs(CustomChange):
    """Sums pairs of spikes that end each other's traces, synapse by synapse."""

    follows_pieces = True

    def __init__(self, window: Window, rule: STDP) -> None:
        super().__init__(window.post.activity.shape[1])
        plain = window.vjp.is_matrix and window.vjp.reads_input and window.pre.activity.ndim == 3
        should = f"'symmetric' for `{window.name}` of shape {list(window.param.shape)}, as others"
        should += " need a matrix [out, in] with an entry for each synapse"
        check_value(plain, "pairing", rule.pairing, should)
        self.window, self.rule = window, rule
        self.decays = decay_factor(rule.tc_pre, window.dt), decay_factor(rule.tc_post, window.dt)
        self.keys = [
            StateKey("sample", f"{window.name} {side} trace of {rule.pairing} pairs", decay)
            for side, decay in zip(("pre", "post"), self.decays, strict=True)
        ]

    @cached_property
    def sums(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The pairs that each side completes, and both traces at the end, of each synapse."""
        window, reduced = self.window, self.rule.pairing == "reduced"
        param = window.param.detach()
        zeros = param.new_zeros(4, self.size, *param.shape, dtype=window.post.dtype)
        up, down, x, y = zeros.unbind(0)
        for trace, key in zip((x, y), self.keys, strict=True):
            if (before := window.left_for_samples(key)) is not None:
                trace.copy_(before)
        sides = (side.values().unbind(0) for side in (window.pre, window.post))
        for pre, post in zip(*sides, strict=True):
            pre, post = pre.unsqueeze(1), post.unsqueeze(2)
            x = self.decays[0] * x
            x = torch.where(pre != 0, pre, x) if reduced else x + pre
            y = torch.where(post != 0, post, self.decays[1] * y)
            up += post * x
            down += y * pre
            x = x.where(post == 0, 0.0)
            y = y.where(pre == 0, 0.0) if reduced else y
        return up, down, x, y

    def parts(self, samples: slice, vjp: Any) -> Parts:
        """Returns both parts: a sum belongs to the part that the sign of its rate selects."""
        found: list[Tensor | None] = [None, None]
        for rate, total in zip((self.rule.lr_post, self.rule.lr_pre), self.sums, strict=False):
            if rate:
                found[rate < 0] = added(abs(rate) * total[samples].sum(0), found[rate < 0])
        return found[0], found[1]

    def carry(self, vjp: Any) -> dict[StateKey, Tensor]:
        """Returns both traces of every synapse at the end."""
        return dict(zip(self.keys, self.sums[2:], strict=True))
