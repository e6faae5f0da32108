"""The checks of a cell's activity, each a pure function of its counts."""

from __future__ import annotations

import math
from collections.abc import Iterator

from lightning_accum._checks import quoted
from lightning_accum.callbacks._counts import Counts
from lightning_accum.callbacks._finding import Finding, number
from lightning_accum.cells.single_steps import TRACES

ELSEWHERE = "recorded elsewhere"
"""The key of the finding that only other processes, or other cells, have recorded activity."""

_BUSY = 0.5  # share of steps with a spike
_IDLE = 8  # batches in a row
_ENOUGH = 1000  # values from which a share is computed
_NEGATIVE = 0.1  # share of outputs
_AWAY = 1.25  # times as far from the target at the end of a fit as at its beginning
_RESIZED = 3  # changes of the batch size
_SIGMA = 5.0  # times the deviation of counts that are as random as a Poisson process
_SPARSE = 1.0  # Hz: targets below this are rare, and ...
_FACTOR = 100.0  # times the target, at which neurons fire that count in another unit


def nothing_recorded(c: Counts) -> Iterator[Finding]:
    """Finds that nothing was recorded, or the rule never called."""
    changed = quoted(w.name for w in c.weights if w.applied and (w.moved is None or w.moved > 0))
    if changed:
        text = (
            f"Cell `{c.cell}` should record activity in each process of a fit. Found none here in"
            f" {number(c.batches, 'training batch')}, and {changed} changed by what"
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


def not_in_model(c: Counts) -> Iterator[Finding]:
    """Finds modules that learn, and are not part of the model that is trained."""
    if c.outside:
        text = (
            f"The modules of cell `{c.cell}` should be part of the model, whose checkpoints and"
            f" device they share. Found another place for its {' and its '.join(c.outside)} so"
            " that no checkpoint holds what is learned: assign it to the LightningModule itself,"
            " or in an `nn.ModuleList` or `nn.ModuleDict` instead of a list or a dictionary."
        )
        yield Finding(c.cell, "not in the model", text, True)


def recorded_no_more(c: Counts) -> Iterator[Finding]:
    """Finds that nothing was recorded after the first epoch, or in half of the batches."""
    if not c.ended or c.windows is None:
        return
    if c.late_batches and not c.late_windows:
        when = "after its first epoch"
    elif c.idle >= _IDLE and 2 * c.idle >= c.batches:
        when = f"in the last {c.idle} of {number(c.batches, 'training batch')}"
    else:
        return
    text = f"`{c.cell}` recorded nothing {when}. {c.why_nothing}"
    yield Finding(c.cell, "recorded no more", text, False)


def fell_silent(c: Counts) -> Iterator[Finding]:
    """Finds neurons that spiked at first, and then no more."""
    silence, spikes = c.silence, c.activity is not None and c.activity.spikes
    if not (c.ended and spikes and silence and all(w.finite for w in c.weights)):
        return
    if any(w.moved and w.rests and w.corrected for w in c.weights):  # a warning says so
        return
    if silence.lasts and 2 * silence.since <= (c.windows or 0):
        yield Finding(c.cell, "fell silent", silence.told(c.cell), False)


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


def negative(c: Counts) -> Iterator[Finding]:
    """Finds negative outputs under a rule that assumes none."""
    if c.rectified and c.activity is not None and c.activity.negative >= _NEGATIVE:
        text = (
            f"{c.activity.negative:.0%} of the outputs of `{c.cell}` are negative, and the rule"
            " assumes none: end the layer with a function such as `nn.ReLU()` or `nn.Sigmoid()`."
        )
        yield Finding(c.cell, "negative", text, False)


def single_steps(c: Counts) -> Iterator[Finding]:
    """Finds windows of one step, between which no trace passes."""
    if c.longest == 1 and not c.carry and (c.windows or 0) > 1 and TRACES & set(c.h):
        how = (
            "Modules get time as their first dimension (`time_dim=0`), which had one entry: call"
            " `x.transpose(0, 1)` if a loader gives the batch first,"
            if c.h.get("time_dim") == 0
            else "Run all steps of a sample in one training step, pass `time_dim=0` to the rule if"
            " modules are called once per sequence,"
        )
        text = (
            f"Every window of `{c.cell}` was a single step, and traces begin at zero in each"
            f" window: only spikes of the same step were paired. {how} or pass `carry=True` to the"
            " callback if batches are pieces of one stream."
        )
        yield Finding(c.cell, "single steps", text, False)


def resized(c: Counts) -> Iterator[Finding]:
    """Finds a stream in which the batch size often changes, so that traces begin at zero."""
    if c.resized >= _RESIZED and 4 * c.resized >= c.batches:
        text = (
            f"The batch size of `{c.cell}` changed {c.resized} times in"
            f" {number(c.batches, 'training batch')} of a stream (`carry=True`), and traces and"
            " neurons begin at rest when it does: keep the batch size, and mask the spikes and"
            " rewards of samples that have ended, or pass `drop_last=True` to a loader whose last"
            " batch is smaller."
        )
        yield Finding(c.cell, "batch size", text, False)


def off_target(c: Counts) -> Iterator[Finding]:
    """Finds a rate that moves away from the rule's target, or a target in another unit."""
    dt = c.h.get("dt")
    if not (c.ended and c.target is not None and c.course and isinstance(dt, (int, float))):
        return
    if c.activity is None or not c.activity.spikes or not all(w.finite for w in c.weights):
        return
    hz = 1000.0 / dt
    first, middle, last = (hz * count / size for count, size in c.course)
    begun, passed, left = (abs(rate - c.target) for rate in (first, middle, last))
    noise = hz * math.sqrt(sum(n / size**2 for n, size in (c.course[0], c.course[-1])))
    went = (
        f"The neurons of `{c.cell}` fired at {first:.3g} Hz at first and at {last:.3g} Hz at last,"
    )
    reached = c.target / 3 < last < c.target * 3 and not (c.silence and c.silence.lasts)
    if 0 < c.target < min(_SPARSE, first / _FACTOR) and not reached:
        text = (
            f"{went} and their target is {c.target:g} Hz: give it in spikes per second, not per ms"
            " or per step."
        )
        yield Finding(c.cell, "target in another unit", text, False)
    elif begun < passed and _AWAY * begun < left and abs(last - first) > _SIGMA * noise:
        text = (
            f"{went} away from their target of {c.target:g} Hz: look at the sign of the rate, which"
            " depends on whether the connection excites or inhibits, and whether its output is"
            " subtracted, as `InhibitorySTDP` assumes; or look at what else moves their rate."
        )
        yield Finding(c.cell, "away from target", text, False)
