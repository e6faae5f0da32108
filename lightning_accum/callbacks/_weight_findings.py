"""The checks of a cell's weights, each a pure function of its counts."""

from __future__ import annotations

from collections.abc import Iterator

from lightning_accum.callbacks._counts import Counts, Weights
from lightning_accum.callbacks._finding import Finding, number
from lightning_accum.callbacks._undone_findings import is_undone
from lightning_accum.callbacks._why_unmoved import factor, raised, why_unmoved

_GROWN = 10.0  # times the norm when the fit began
_OUTSIDE = 0.1  # share of weights outside the range that the rule assumes
_NARROW = 0.01  # share of that range in which all weights are
_NEAR = 1e-4  # distance of a whole fit, if it is also less than ...
_SLOW = 1e-6  # for each update
_SMALL = 1e-4  # ratio of an update to the weights, if also the `lr` is at most ...
_FACTOR = 0.01
_LOSERS = 0.1  # share of neurons that never won
_ALIKE = 0.95  # share of the weights' variance that all neurons have in common
_MOST = 0.9  # share of weights
_FEW = 10  # batches; a fit that stops before has little to lose


def nonfinite(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds weights that are NaN or infinite."""
    if w.finite:
        return
    if w.began_finite:
        when = "which came during the fit: lower the rates, and look at what else changes it"
    else:
        when = "which it held when the fit began: look at how it is initialized or loaded"
    text = f"Weights should be finite. Found NaN or Inf in `{c.cell}.{w.name}`, {when}."
    yield Finding(c.cell, f"nonfinite {w.name}", text, True)


def never_applied(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds changes that were never applied."""
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
    elif c.failed and c.batches >= _FEW:
        why = (
            "The fit was stopped before they were: apply more often, by a smaller"
            " `apply_every_n_batches` or `accumulate_grad_batches`."
        )
    elif c.ended:
        why = "The fit ended before they were: train for longer, or apply more often."
    else:
        return  # the update is still to come
    text = (
        f"The changes of cell `{c.cell}` should be applied. Found those of `{w.name}` pending"
        f" after {number(c.batches, 'training batch')}, and none applied. {why}"
    )
    yield Finding(c.cell, f"never applied {w.name}", text, True)


def unmoved(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds weights that applied changes have not moved, or only the first one."""
    still = w.moved == 0 or (w.moved is not None and w.rests)
    if not (still and w.finite) or (w.pending and not w.applied):
        return
    if (w.dropped and w.dropped >= w.applied) or is_undone(w):  # another warning says so
        return
    why, warns = why_unmoved(c, w)
    if not why:
        return
    on, since = ("go on to ", "its first updates") if w.moved else ("", "the fit began")
    text = (
        f"Cell `{c.cell}` should {on}change `{w.name}`. Found it unchanged since {since}, after"
        f" {number(c.batches, 'training batch')} and {number(w.applied, 'applied update')}. {why}"
        if warns
        else f"`{c.cell}.{w.name}` is unchanged since {since}, because {why}"
    )
    yield Finding(c.cell, f"unmoved {w.name}", text, warns)


def hardly_moved(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds weights that a whole fit has moved by next to nothing."""
    if not (c.ended and w.distance and w.finite) or is_undone(w) or w.at_limits >= _MOST:
        return
    if w.rate.slow or w.dt is not None or (w.rests and w.corrected):  # another line says so
        return
    after = ", after its first update," if w.corrected else ""
    if w.distance < min(_NEAR, _SLOW * w.applied):
        text = (
            f"The fit changed `{c.cell}.{w.name}`{after} by a share of {w.distance:.0e}, in"
            f" {number(w.applied, 'update')}: raise {raised(c, w)}, unless it had learned before."
        )
        yield Finding(c.cell, f"hardly moved {w.name}", text, False)
    elif w.ratio and w.ratio < _SMALL and w.rate.first <= _FACTOR:
        text = (
            f"An update changes `{c.cell}.{w.name}` by a share of {w.ratio:.0e}, on average, with"
            f" {factor(c, w)}: it is a factor of the rule's rates, 1 by default, and not a step"
            " size as in Adam."
        )
        yield Finding(c.cell, f"small factor {w.name}", text, False)


def never_won(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds neurons that never won, under a rule by which only winners learn."""
    if c.ended and "winners" in c.h and w.moved and w.finite and w.still >= _LOSERS:
        text = (
            f"{w.still:.0%} of the neurons of `{c.cell}` never won in this fit, so that their"
            f" `{w.name}` is as it was: begin with weights that resemble the input, such as some"
            " samples of it, or take `SoftHebb`, by which all neurons learn."
        )
        yield Finding(c.cell, f"never won {w.name}", text, False)


def left_pending(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds changes that were pending when the fit ended."""
    if c.ended and w.applied and w.pending:
        text = (
            f"The fit ended with changes of `{c.cell}.{w.name}` pending, which are not applied:"
            " step the UpdateOptimizer in `on_train_epoch_end` too, or every n batches with an n"
            " that divides the number of batches."
        )
        yield Finding(c.cell, f"left pending {w.name}", text, False)


def growth(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds weights that grow without bound."""
    if w.growth is None or not w.finite or w.bounded or not w.grows or w.growth < _GROWN:
        return
    text = (
        f"The norm of `{c.cell}.{w.name}` grew {w.growth:.0f} times since the fit began, and still"
        " grows: bound the weights (`bound_power`, `Clamp`), keep their norm (`Normalize`), or let"
        " depression balance potentiation."
    )
    yield Finding(c.cell, f"growth {w.name}", text, False)


def began_beyond(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds weights that the limits moved, because they began beyond them."""
    if w.moved and w.finite and w.began_beyond >= _MOST:
        lower, upper = w.limits
        limits = " and ".join(
            f"{what} {limit:g}"
            for what, limit in (("at least", lower), ("at most", upper))
            if limit is not None
        )
        text = (
            f"{w.began_beyond:.0%} of the weights of `{c.cell}.{w.name}` began beyond the limits of"
            f" its updater, {limits}, so that the first update moved them there: begin with weights"
            " within the limits, or correct these (`Clamp(1.0)` is a lower limit, `Clamp(max=1.0)`"
            " an upper one)."
        )
        yield Finding(c.cell, f"began beyond {w.name}", text, False)


def out_of_range(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds weights outside the range that the rule assumes."""
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


def overruled(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds constraints whose limits a later constraint passes."""
    if w.applied and w.overruled:
        text = (
            f"The weights of `{c.cell}.{w.name}` should be within the limits of their constraints."
            f" Found some beyond those that {w.overruled}: register the one that should hold last."
        )
        yield Finding(c.cell, f"overruled {w.name}", text, True)


def alike(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds neurons whose weights are all alike."""
    if w.at_limits >= _OUTSIDE or w.began_beyond >= _MOST:  # another line says so
        return
    if c.ended and w.moved and w.finite and w.shared >= _ALIKE:
        text = (
            f"The neurons of `{c.cell}` have nearly the same weights: {w.shared:.1%} of the"
            f" variance of `{w.name}` is common to all. Let them compete, with"
            " `LateralInhibition` or `WinnerTakeAll`, `AdaptiveLIF` and `Normalize`, and begin with"
            " random weights."
        )
        yield Finding(c.cell, f"alike {w.name}", text, False)
