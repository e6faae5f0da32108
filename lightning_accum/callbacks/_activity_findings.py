"""The checks of a cell's activity, each a pure function of its counts."""

from __future__ import annotations

from collections.abc import Iterator

from lightning_accum.callbacks._counts import Counts
from lightning_accum.callbacks._finding import Finding, number

ELSEWHERE = "recorded elsewhere"
"""The key of the finding that only other processes, or other cells, have recorded activity."""

_BUSY = 0.5  # share of steps with a spike
_QUIET = 3  # windows in a row without a spike, since the first half of the fit
_ENOUGH = 1000  # values from which a share is computed
_TRACES = frozenset({"tc_pre", "tc_post", "tc_pos", "tc_neg"})


def nothing_recorded(c: Counts) -> Iterator[Finding]:
    """Finds that nothing was recorded, or the rule never called."""
    changed = [f"`{w.name}`" for w in c.weights if w.applied and (w.moved is None or w.moved > 0)]
    if changed:
        text = (
            f"Cell `{c.cell}` should record activity in each process of a fit. Found none here in"
            f" {number(c.batches, 'training batch')}, and {' and '.join(changed)} changed by what"
            f" other processes, or other cells of the connection, recorded. {c.why_nothing}"
        )
        yield Finding(c.cell, ELSEWHERE, text, not c.rests)
        return
    if c.unevaluated:
        text = (
            f"Cell `{c.cell}` should be evaluated to learn. Found {number(c.unevaluated, 'step')}"
            f" recorded in {number(c.batches, 'training batch')}, and the rule never called: call"
            " `step()` on the FabricCellTrainer after each batch."
        )
        yield Finding(c.cell, "nothing recorded", text, True)
        return
    text = (
        f"Cell `{c.cell}` should record activity to learn from. Found none in"
        f" {number(c.batches, 'training batch')}. {c.why_nothing}"
    )
    yield Finding(c.cell, "nothing recorded", text, not c.rests)


def silence(c: Counts) -> Iterator[Finding]:
    """Finds sides without any spike."""
    if c.ended and c.late_batches and not c.late_windows and c.windows is not None:
        text = f"`{c.cell}` recorded nothing after its first epoch. {c.why_nothing}"
        yield Finding(c.cell, "recorded no more", text, False)


def fell_silent(c: Counts) -> Iterator[Finding]:
    """Finds neurons that spiked at first, and then no more."""
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


def busy(c: Counts) -> Iterator[Finding]:
    """Finds inputs or neurons that spike in most steps."""
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


def single_steps(c: Counts) -> Iterator[Finding]:
    """Finds windows of one step, between which no trace passes."""
    if c.longest == 1 and not c.carry and (c.windows or 0) > 1 and _TRACES & set(c.h):
        text = (
            f"Every window of `{c.cell}` was a single step, and traces begin at zero in each"
            " window: only spikes of the same step were paired. Run all steps of a sample in one"
            " training step, pass `time_dim=0` to the rule if modules are called once per"
            " sequence, or `carry=True` to the callback if batches are pieces of one stream."
        )
        yield Finding(c.cell, "single steps", text, False)
