"""The checks of a cell's learning, each a pure function of its counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from lightning_accum.callbacks._counts import Counts, Weights

_GROWN = 10.0  # times the norm when the fit began
_BUSY = 0.5  # share of steps with a spike
_QUIET = 3  # windows in a row without a spike, since the first half of the fit
_OUTSIDE = 0.1  # share of weights outside the range that the rule assumes
_NARROW = 0.01  # share of that range in which all weights are
_ALIKE = 0.95  # share of the weights' variance that all neurons have in common
_ENOUGH = 1000  # values from which a share is computed
_TRACES = frozenset({"tc_pre", "tc_post", "tc_pos", "tc_neg"})


class Finding(NamedTuple):
    """A message about a cell.

    Attributes:
        cell: name of the cell.
        key: identifies the finding among those of the cell.
        text: what was found, and the remedy.
        warns: whether it is a mistake, so that it deserves a warning.
    """

    cell: str
    key: str
    text: str
    warns: bool


def findings(counts: Counts) -> list[Finding]:
    """Returns the findings on a cell; none if it learns well."""
    if counts.windows == 0:
        return list(_nothing_recorded(counts))
    found = [
        finding
        for check in (_silence, _fell_silent, _busy, _single_steps)
        for finding in check(counts)
    ]
    checks: tuple[Callable[[Counts, Weights], Iterator[Finding]], ...]
    checks = (_nonfinite, _never_applied, _unmoved, _left_pending, _growth, _range, _alike)
    for weights in counts.weights:
        found += [finding for check in checks for finding in check(counts, weights)]
    return found


def _nothing_recorded(c: Counts) -> Iterator[Finding]:
    if any(w.applied for w in c.weights):  # other processes recorded activity
        return
    if c.unevaluated:
        text = (
            f"Cell `{c.cell}` should be evaluated to learn. Found {_number(c.unevaluated, 'step')}"
            f" recorded in {_number(c.batches, 'training batch')}, and the rule never called: call"
            " `step()` on the FabricCellTrainer after each batch."
        )
        yield Finding(c.cell, "nothing recorded", text, True)
        return
    text = (
        f"Cell `{c.cell}` should record activity to learn from. Found none in"
        f" {_number(c.batches, 'training batch')}. {c.why_nothing}"
    )
    yield Finding(c.cell, "nothing recorded", text, not c.rests)


def _silence(c: Counts) -> Iterator[Finding]:
    if c.ended and c.late_batches and not c.late_windows and c.windows is not None:
        text = f"`{c.cell}` recorded nothing after its first epoch. {c.why_nothing}"
        yield Finding(c.cell, "recorded no more", text, False)


def _fell_silent(c: Counts) -> Iterator[Finding]:
    silence, spikes = c.silence, c.activity is not None and c.activity.spikes
    if not (c.ended and spikes and silence and all(w.finite for w in c.weights)):
        return
    if silence.looks >= _QUIET and 2 * silence.since <= (c.windows or 0):
        text = (
            f"The neurons of `{c.cell}` fired at first, and in none of the last {silence.looks} of"
            f" {silence.of} windows that were looked at: look for weights that a constraint or"
            " depression moves to zero, or a threshold that rises too far (`theta_plus`)."
        )
        yield Finding(c.cell, "fell silent", text, False)


def _busy(c: Counts) -> Iterator[Finding]:
    activity = c.activity
    if activity is None or activity.size < _ENOUGH:
        return
    if activity.spikes_in and activity.pre > _BUSY:
        text = (
            f"The input of `{c.cell}` spikes in {activity.pre:.0%} of the steps, so that spike"
            " times tell little: lower its rate, or encode values that stay the same for many steps"
            " as spikes (`PoissonEncoder`)."
        )
        yield Finding(c.cell, "input in most steps", text, False)
    if activity.spikes and activity.post > _BUSY:
        text = (
            f"The neurons of `{c.cell}` spike in {activity.post:.0%} of the steps, so that spike"
            " times tell little: raise their threshold, or lower the rate of the input or the"
            " weights."
        )
        yield Finding(c.cell, "fires in most steps", text, False)


def _single_steps(c: Counts) -> Iterator[Finding]:
    if c.longest == 1 and not c.carry and (c.windows or 0) > 1 and _TRACES & set(c.h):
        text = (
            f"Every window of `{c.cell}` was a single step, and traces begin at zero in each"
            " window: only spikes of the same step were paired. Run all steps of a sample in one"
            " training step, pass `time_dim=0` to the rule if modules are called once per"
            " sequence, or `carry=True` to the callback if batches are pieces of one stream."
        )
        yield Finding(c.cell, "single steps", text, False)


def _nonfinite(c: Counts, w: Weights) -> Iterator[Finding]:
    if w.finite:
        return
    if w.began_finite:
        when = "which came during the fit: lower the rates, and look at what else changes it"
    else:
        when = "which it held when the fit began: look at how it is initialized or loaded"
    text = f"Weights should be finite. Found NaN or Inf in `{c.cell}.{w.name}`, {when}."
    yield Finding(c.cell, f"nonfinite {w.name}", text, True)


def _never_applied(c: Counts, w: Weights) -> Iterator[Finding]:
    if w.applied or not w.pending:
        return
    if c.by == "loop":
        why = "Call `step()` on the FabricCellTrainer."
    elif not w.held:
        why = (
            "No optimizer of this fit holds the parameter, as when a cell is registered after the"
            " fit began: register it before, or name it in `cells`."
        )
    elif c.by == "module":
        why = (
            "The module's own UpdateOptimizer was not stepped: call `step()` on it at the end of"
            " `training_step`, or return none from `configure_optimizers`, and the callback"
            " applies updates itself."
        )
    elif c.ended:
        why = "The fit ended before they were: train for longer, or apply more often."
    else:
        return  # the update is still to come
    text = (
        f"The changes of cell `{c.cell}` should be applied. Found those of `{w.name}` pending"
        f" after {_number(c.batches, 'training batch')}, and none applied. {why}"
    )
    yield Finding(c.cell, f"never applied {w.name}", text, True)


def _unmoved(c: Counts, w: Weights) -> Iterator[Finding]:
    if w.moved is None or w.moved > 0 or not w.finite or (w.pending and not w.applied):
        return
    if w.dropped and w.dropped >= w.applied:  # another warning says so
        return
    why, warns = _why_unmoved(c, w)
    text = (
        f"Cell `{c.cell}` should change `{w.name}`. Found it unchanged since the fit began, after"
        f" {_number(c.batches, 'training batch')} and {_number(w.applied, 'applied update')}. {why}"
        if warns
        else f"`{c.cell}.{w.name}` is unchanged since the fit began, because {why}"
    )
    yield Finding(c.cell, f"unmoved {w.name}", text, warns)


def _why_unmoved(c: Counts, w: Weights) -> tuple[str, bool]:
    """Returns why a parameter has not changed, and whether that is a mistake."""
    if c.rates and not any(c.rates.values()):
        return f"{_names(c.rates)} {'is' if len(c.rates) == 1 else 'are'} 0.", False
    if not c.scale:
        return "the `lr` of the optimizer that applies updates is 0.", False
    if c.activity is not None and not c.activity.pre:
        return "Its input was always 0: look at the data, and at the rate of the encoder.", True
    if c.undefined and c.activity is not None and not c.activity.post:
        return (
            "Its neurons never fired, for their membrane potential is NaN: look for NaN in the"
            " data, in the weights, and in what else enters the current."
        ), True
    if c.activity is not None and not c.activity.post:
        return (
            "Its neurons never fired: lower their threshold, or raise the rate of the input or the"
            " weights."
        ), True
    if not w.applied:
        return (
            "The rule returned no change, or the change was exported as a gradient and no optimizer"
            " applied it: look at the rule's `terms`, and step the optimizer that holds the"
            " parameter."
        ), True
    if w.at_limits == 1:
        return "All weights are at a limit: weaken the part that moves them there.", True
    step = torch.finfo(w.dtype).eps * w.largest if w.dtype.is_floating_point else 1
    return (
        f"Weights of up to {w.largest:.2g} in {str(w.dtype).removeprefix('torch.')} change in steps"
        f" of about {step:.0e}, and every update was smaller, or was 0 because of the reward or"
        " the error, a pseudo-derivative (neurons far from their threshold), a reduction or a"
        f" bound: raise {_names(c.rates) if c.rates else 'the rates'}, or keep the"
        " weights in a wider dtype."
    ), True


def _left_pending(c: Counts, w: Weights) -> Iterator[Finding]:
    if c.ended and w.applied and w.pending:
        text = (
            f"The fit ended with changes of `{c.cell}.{w.name}` pending, which are not applied:"
            " step the UpdateOptimizer in `on_train_epoch_end` too, or every n batches with an n"
            " that divides the number of batches."
        )
        yield Finding(c.cell, f"left pending {w.name}", text, False)


def _growth(c: Counts, w: Weights) -> Iterator[Finding]:
    if w.growth is None or not w.finite or w.bounded or not w.grows or w.growth < _GROWN:
        return
    text = (
        f"The norm of `{c.cell}.{w.name}` grew {w.growth:.0f} times since the fit began, and still"
        " grows: bound the weights (`bound_power`, `Clamp`), keep their norm (`Normalize`), or let"
        " depression balance potentiation."
    )
    yield Finding(c.cell, f"growth {w.name}", text, False)


def _range(c: Counts, w: Weights) -> Iterator[Finding]:
    lower, upper = w.range
    if not (c.ended and w.moved and w.finite and lower is not None):
        return
    if w.outside >= _OUTSIDE:
        limits = f"at least {lower:g}" if upper is None else f"from {lower:g} to {upper:g}"
        how = (
            "begin with positive weights and keep them so (`Clamp(min=0)`), and subtract the"
            " connection's output from the neurons' input"
            if upper is None
            else "give the rule the limits of the weights, or begin with weights between them"
        )
        text = (
            f"{w.outside:.0%} of the weights of `{c.cell}.{w.name}` are outside the range that the"
            f" rule assumes, {limits}: {how}."
        )
        yield Finding(c.cell, f"range {w.name}", text, False)
    elif upper is not None and 0 < w.largest - lower < _NARROW * (upper - lower):
        text = (
            f"The weights of `{c.cell}.{w.name}` reach {w.largest:.2g}, and the rule assumes them"
            f" from {lower:g} to {upper:g}, so that the change hardly depends on them: give the"
            " rule a smaller `w_max`."
        )
        yield Finding(c.cell, f"range {w.name}", text, False)


def _alike(c: Counts, w: Weights) -> Iterator[Finding]:
    if c.ended and w.moved and w.finite and w.shared >= _ALIKE and w.at_limits < _OUTSIDE:
        text = (
            f"The neurons of `{c.cell}` have nearly the same weights: {w.shared:.1%} of the"
            f" variance of `{w.name}` is common to all. Let them compete, with"
            " `LateralInhibition` or `WinnerTakeAll`, `AdaptiveLIF` and `Normalize`, and begin with"
            " random weights."
        )
        yield Finding(c.cell, f"alike {w.name}", text, False)


def _names(rates: Mapping[str, object]) -> str:
    return " and ".join(f"`{name}`" for name in rates)


def _number(count: int, what: str) -> str:
    plural = what + ("es" if what.endswith("ch") else "s")
    return f"{count} {what if count == 1 else plural}"
