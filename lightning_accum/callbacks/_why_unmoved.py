"""Why the changes that were applied to a parameter have not moved it."""

from __future__ import annotations

import torch

from lightning_accum._checks import quoted
from lightning_accum.callbacks._counts import Counts, Weights
from lightning_accum.cells.undoing import undone_by
from lightning_accum.cells.why_zero import why_zero


def why_unmoved(c: Counts, w: Weights) -> tuple[str, bool]:
    """Returns why a parameter has not changed, if nothing else says so, and whether it should.

    Args:
        c: the counts of the cell.
        w: what is known of the parameter.
    """
    if c.rates and not any(c.rates.values()):
        return f"{quoted(c.rates)} {'is' if len(c.rates) == 1 else 'are'} 0.", False
    if w.rate.slow:
        return "", False  # another line says so
    if not w.rate.lr:
        return "updates are applied to it with `lr = 0`.", False
    if why := known_cause(c, w) or (w.undone_by and undone_by(w.undone_by)):
        return why, True
    if w.moved and (not w.corrected or w.at_limits == 1):
        return "", False  # it has learned in its first update
    if c.why_unmoved:
        return c.why_unmoved, True
    if not w.applied:
        return (
            "The rule returned no change, or the change was exported as a gradient and no optimizer"
            " applied it: look at the rule's `terms`, and step the optimizer that holds the"
            " parameter."
        ), True
    if w.at_limits == 1:
        return "All weights are at a limit: weaken the part that moves them there.", True
    if w.ratio and not w.rests:
        return (
            f"Updates changed it, by a share of {w.ratio:.0e} on average, and something set it back"
            " to its first values: look for what else writes to it, such as a callback that loads,"
            " copies or prunes weights (`ModelPruning` resets them unless"
            " `use_lottery_ticket_hypothesis=False`)."
        ), True
    if w.reset_by:
        return (
            f"A constraint, {quoted(w.reset_by)}, sets it to these values whatever an update does:"
            " look at what it copies to the weights, or call `remove()` on its handle."
        ), True
    if w.moved and c.silence is not None and c.silence.lasts:
        return c.silence.told(c.cell), True
    step = torch.finfo(w.dtype).eps * w.largest if w.dtype.is_floating_point else 1
    return (
        f"Weights of up to {w.largest:.2g} in {str(w.dtype).removeprefix('torch.')} change in steps"
        f" of about {step:.0e}, and every update was smaller, or 0 due to the rule's `terms`, the"
        " reward, the error, a pseudo-derivative (neurons far from their threshold), a reduction,"
        f" bound or constraint: look at these, raise {raised(c, w)}, or keep the weights in a wider"
        " dtype."
    ), True


def known_cause(c: Counts, w: Weights) -> str | None:
    """Returns why every change of a parameter was 0; ``None`` if nothing is known of that.

    Args:
        c: the counts of the cell.
        w: what is known of the parameter.
    """
    zeroed = 0 < w.applied <= w.zeroed
    return why_zero(c.activity, c.undefined, c.zeros, zeroed)


def raised(c: Counts, w: Weights) -> str:
    """Returns what to raise if changes are too small.

    Args:
        c: the counts of the cell.
        w: what is known of the parameter.
    """
    return (quoted(c.rates) or "the rates") + ("" if w.rate.first >= 1 else f", or {factor(c, w)}")


def factor(c: Counts, w: Weights) -> str:
    """Returns what all updates of a parameter are multiplied by, and its value.

    Args:
        c: the counts of the cell.
        w: what is known of the parameter.
    """
    if c.by == "loop":
        return f"`scale = {w.rate.first:g}` of `step()`"
    return f"`lr = {w.rate.first:g}` of the optimizer that applies updates"
