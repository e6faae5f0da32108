"""Compares a recorded potential with the spikes of its neuron, in an early window."""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lightning_accum._checks import is_number
from lightning_accum._compat import is_traced
from lightning_accum.distributed.world import is_first
from lightning_accum.functional.spikes import Surrogate
from lightning_accum.rules._library_constants import library_constants
from lightning_accum.rules._observed_cell import ObservedCell

_VALUES = 1 << 20  # values of a window that are compared
_ENOUGH = 8  # spikes, and values above the threshold, before anything is said
_SHARE = 0.1  # of the spikes
_CLOSE = 0.01  # of the mean distance from the threshold
_OTHER = 1.1  # times the time constant


class Comparison(NamedTuple):
    """Potentials and spikes of some neurons in a window; potentials are relative to the threshold.

    Up to its first spike, a neuron with any reset, refractory time or adaptation compares the
    potential with one threshold.

    Args:
        values: the number of values.
        spikes: the number of spikes.
        differ: the number of values in which potential and spike are not the same number.
        below: the number of spikes with a potential below the threshold.
        above: the number of potentials above the threshold without a spike, before any spike.
        fires: the smallest potential of a neuron's first spike.
        rests: the largest potential before a neuron's first spike.
        close: the distance from the threshold that may be due to rounding.
        lowest: the smallest potential.
        highest: the largest potential.
        slope: the largest pseudo-derivative, ``inf`` without one.
    """

    values: float
    spikes: float
    differ: float
    below: float
    above: float
    fires: float
    rests: float
    close: float
    lowest: float
    highest: float
    slope: float

    @property
    def parted(self) -> bool:
        """Whether some threshold parts the potentials of first spikes from those before them."""
        return self.rests <= self.fires + self.close

    @property
    def are_spikes(self) -> bool:
        """Whether the potential is the spikes themselves."""
        return self.differ == 0 and self.spikes < self.values

    @property
    def too_low(self) -> bool:
        """Whether spikes have a potential below the threshold, and none is missing above it."""
        return self.below >= max(_ENOUGH, _SHARE * self.spikes) and not self.above

    @property
    def too_high(self) -> bool:
        """Whether neurons fire from a potential on that is well above the threshold."""
        return self.above >= _ENOUGH and not self.below and self.parted


def compare(
    spikes: Tensor, potential: Tensor, threshold: Tensor | float, surrogate: Surrogate | None
) -> Comparison:
    """Compares potentials with spikes; waits for the device once.

    Args:
        spikes: ``[T, B, ...]``.
        potential: ``[T, B, ...]``.
        threshold: the threshold, ``[T, B, ...]`` or a number.
        surrogate: makes the pseudo-derivative; ``None`` without one.
    """
    every = -(-spikes.numel() // _VALUES)  # all steps of each neuron that is looked at
    z = spikes.flatten(1)[:, ::every] != 0
    v = potential.flatten(1)[:, ::every]
    rounding = 4 * torch.finfo(v.dtype).eps * v.abs().max()
    v = v.to(torch.promote_types(v.dtype, torch.float32))
    if isinstance(threshold, Tensor):
        threshold = threshold.expand_as(potential).flatten(1)[:, ::every].to(v.dtype)
    x = v - threshold
    close = _CLOSE * x.abs().mean() + rounding
    until = z.cumsum(0) - z.long() == 0  # up to and including the first spike of each
    first, before = z & until, ~z & until
    slope = x.new_tensor(math.inf) if surrogate is None else surrogate.derivative(x).abs().max()
    found = (
        *(z.sum(), (v != z).sum(), (z & (x < -close)).sum(), (before & (x > close)).sum()),
        *(x.masked_fill(~first, math.inf).min(), x.masked_fill(~before, -math.inf).max()),
        *(close, x.min(), x.max(), slope),
    )
    return Comparison(z.numel(), *torch.stack([each.to(v.dtype) for each in found]).tolist())


def check_potential(rule: str, seen: ObservedCell, compares: bool = True) -> None:
    """Warns, once, if a rule reads something else than the potential that the neuron compares.

    Looks at windows 1, 2, 4, 8 and so on until there are enough spikes in one; not at neurons that
    say what they keep.

    Args:
        rule: the name of the rule.
        seen: the cell, and what was recorded of it.
        compares: whether the rule compares the potential with the neuron's threshold.
    """
    plan, windows = seen.plan, seen.plan.state.tally.windows
    if plan.potential_is_known or windows & (windows + 1) or is_traced():
        return
    h, neuron = plan.h, seen.cell.neuron
    if h.membrane in getattr(neuron, "new_in_each_call", ()):
        plan.potential_is_known = True
        return
    found = {name: each.activity for name, each in seen.signals.items()}
    spikes, potential = found["post"], found["membrane"]
    if potential.shape != spikes.shape or not spikes.numel() or not potential.is_floating_point():
        return  # the rule says so
    if potential.is_meta:  # which has no values
        return
    threshold: Tensor | float = 0.0
    if compares:
        threshold = h.threshold if is_number(h.threshold) else found["threshold"]
        if not windows:
            plan.potential_is_known = _check_constants(rule, seen.name, neuron, h)
    told = plan.potential_is_known
    comparison = compare(spikes, potential, threshold, h.surrogate if compares else None)
    plan.flat = "" if comparison.slope else _flat(comparison, h)
    plan.potential_is_known = told or comparison.spikes >= _ENOUGH
    if plan.potential_is_known and not told:
        _warn(_mistake(rule, seen.name, comparison, h, compares))


def _mistake(rule: str, name: str, c: Comparison, h: Any, compares: bool) -> str:
    """Returns what is wrong with a potential; empty if that is nothing, or not certain."""
    if c.are_spikes:
        return (
            f"`{rule}` should read the membrane potential of cell `{name}`. Found that it reads the"
            f" spikes: all {c.values:.0f} values are equal. Give the rule the potential before the"
            " reset by `membrane=`, such as `lambda out: out[1]` if the neuron returns spikes and"
            " potential."
        )
    if not compares:
        return ""
    fires = f"neurons fired from {_place(c.fires, h)} on"
    if c.too_low:
        what = f"`{rule}` should read the potential of cell `{name}` that the neuron compares with"
        found = (
            f"{what} its threshold, before the reset. Found that {c.below:.0f} of {c.spikes:.0f}"
            f" spikes have a potential below {_threshold(h)}, and no potential above it is without"
            " a spike"
        )
        if c.parted and c.rests > -math.inf:
            return (
                f"{found}; {fires}, and not at {_place(c.rests, h)} and less: give the rule the"
                " neuron's own `threshold=`, or, if this potential is the one after the reset, the"
                " one before it by `membrane=`."
            )
        return (
            f"{found}: give the rule the potential before the reset by `membrane=`, or, if it is"
            " that, the neuron's own `threshold=`."
        )
    if c.too_high:
        return (
            f"Argument `threshold` of `{rule}` should be that of the neuron of cell `{name}`. Found"
            f" {_threshold(h)}, and {c.above:.0f} potentials above it without a spike, before the"
            f" first spikes: {fires}, and not at {_place(c.rests, h)} and less. Give the rule the"
            " neuron's own `threshold=`."
        )
    return ""


def _check_constants(rule: str, name: str, neuron: nn.Module, h: Any) -> bool:
    """Warns if the neuron is of a known library, and has other constants than the rule.

    Returns:
        Whether it has another threshold.
    """
    known = library_constants(neuron)
    if known is None:
        return False
    kind = f"the neuron of cell `{name}`, a `{type(neuron).__name__}`"
    tc_mem, own = known.tc_mem(h.dt), h.threshold
    if tc_mem and not tc_mem[0] / _OTHER <= h.tc_mem <= tc_mem[1] * _OTHER:
        low, high = known.decays or (0.0, 0.0)
        decay = f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
        _warn(
            f"Argument `tc_mem` of `{rule}` should be that of {kind}, which keeps {decay} of its"
            " potential from step to step. Found"
            f" `tc_mem = {h.tc_mem:.4g}` and `dt = {h.dt:g}`: give the rule"
            f" `tc_mem={tc_mem[0]:.4g}`, which is `-dt / math.log({low:.4g})`."
        )
    if known.thresholds and is_number(own):
        low, high = known.thresholds
        close = _CLOSE * max(abs(low), abs(high))
        if not low - close <= own <= high + close:
            _warn(
                f"Argument `threshold` of `{rule}` should be that of {kind}, {high:.4g}. Found"
                f" `threshold = {own:g}`: give the rule `threshold={high:.4g}`."
            )
            return True
    return False


def _flat(c: Comparison, h: Any) -> str:
    """Returns that the pseudo-derivative is 0 everywhere, and the remedy."""
    between = f"from {_place(c.lowest, h)} to {_place(c.highest, h)}"
    return (
        f"The pseudo-derivative of its neurons was 0 at every potential that was looked at,"
        f" {between}, and {_threshold(h)}: give the rule the neuron's own `threshold=`, or a"
        f" `surrogate=` that is wider than `{h.surrogate!r}`."
    )


def _threshold(h: Any) -> str:
    own = h.threshold
    return f"the rule's `threshold = {own:g}`" if is_number(own) else "the recorded threshold"


def _place(x: float, h: Any) -> str:
    """Returns a potential, for readers: relative to the threshold if this is recorded."""
    own = h.threshold
    return f"{x + own:.4g}" if is_number(own) else f"{x:+.4g} relative to it"


def _warn(text: str) -> None:
    if text and is_first():
        warnings.warn(text, UserWarning, stacklevel=2)
