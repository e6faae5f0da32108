"""Warns if changes that a rule makes without a callback do not move its weights any more."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from lightning_accum._checks import quoted
from lightning_accum.cells.first_values import ENOUGH
from lightning_accum.cells.state import rates_in
from lightning_accum.cells.undoing import undoing, undone_by
from lightning_accum.cells.why_zero import why_zero
from lightning_accum.functional.numbers import widened
from lightning_accum.nn.linear import step_of_delays
from lightning_accum.rules._link import Link
from lightning_accum.updates import Updater

_PART = 4  # neurons are silent since the first quarter of the windows, if as many spikes as ...
_EXPECTED = 10  # ... these were expected
_NEAR = 1e-4  # share of the largest weight, if it is also less than ...
_SLOW = 1e-7  # ... for each update
_WHY = (
    "look at the activity, at the reduction of batches and of the updater, and at limits,"
    " and raise the rates."
)


def warn_of_nonfinite(link: Link, updater: Updater) -> None:
    """Warns if updates were dropped for NaN or Inf; waits for the device.

    Args:
        link: what is known of the cell.
        updater: the updater of its parameters.
    """
    skipped = updater.lately_skipped
    for param in link.params:
        if skipped.get(param) and link.tally.windows and link.tally.warns(f"nonfinite {param}"):
            warnings.warn(
                dropped_updates(link.cell, param, skipped[param]), RuntimeWarning, stacklevel=4
            )


def dropped_updates(cell: str, param: str, dropped: int) -> str:
    """Returns the text of a message that updates were dropped for NaN or Inf.

    Args:
        cell: the name of the cell.
        param: the name of the parameter.
        dropped: the number of its updates that were dropped.
    """
    return (
        f"Updates should be finite. Found NaN or Inf in {dropped} updates of `{param}`"
        f" of cell `{cell}`, which were dropped: look at the activity, and at what"
        " the rule is given, such as a reward or a kernel; or lower the rates."
    )


def warn_of_unmoved(link: Link, updater: Updater) -> None:
    """Warns if all changes that were applied so far have not moved a parameter.

    Args:
        link: what is known of the cell.
        updater: the updater of its parameters.
    """
    rule, cell, _, tally, *_ = link
    activity, zeros = tally.looks.activity(), tally.looks.zeros()
    held, counts = updater.held, updater.applied
    changed = {p: held[p].detach() for p in link.params if p in held and counts.get(p)}
    if why_zero(activity, zeros=zeros):
        if updater.known_parent is not None:
            held = {p: updater.target(p) for p in link.params if p in updater.names} | held
        rest = (p for p in link.params if p in held and p not in changed)
        changed |= {p: held[p].detach() for p in rest if not getattr(updater, p).unused}
    skipped, zeroed = updater.lately_skipped, updater.zeroed
    for param, back in tally.never_moved(changed).items():
        applied = updater.applied.get(param, 0)
        if 0 < applied <= skipped.get(param, 0):
            continue  # another warning says so
        times = f"{tally.windows} calls and {applied} applied updates"
        found, why = f"it unchanged, after {times}", ""
        if not changed[param].isfinite().all():
            found = f"NaN or Inf in it before and after {times}, so that neurons never fire"
        elif back:
            found = f"it at its first value again, after {times}, and {back} times in between"
            why = ": look for what else writes to it, such as a `load_state_dict`."
        elif known := why_zero(activity, zeros=zeros, zeroed=0 < applied <= zeroed.get(param, 0)):
            why = f". {known}"
        else:
            found += ", which were 0 or lost in rounding"
        why = why or f": {_WHY}"
        warnings.warn(
            f"`{rule}` should have moved `{param}` of cell `{cell}` by now. Found {found}{why}",
            RuntimeWarning,
            stacklevel=4,
        )


def warn_of_stopped(link: Link, updater: Updater) -> None:
    """Warns if only the first update has moved a parameter; waits for the device.

    A constraint may have moved it there, while the changes of the rule are 0, or are undone.

    Args:
        link: what is known of the cell.
        updater: the updater of its parameters.
    """
    if (values := link.tally.values) is None:
        return
    held = {p: updater.held[p].detach() for p in link.params if updater.applied.get(p)}
    stopped = values.stopped({p: value for p, value in held.items() if updater.constraints_of(p)})
    for param, value in held.items():
        rests = values.rests(param, value)
        if not (rests or param in stopped):
            continue
        why = _why_it_rests(link, updater, param, value, rests)
        if why and link.tally.warns("weights"):
            when = "in at least the second half of" if rests else "since the first calls, after"
            warnings.warn(
                f"`{link.rule}` should go on to move `{param}` of cell `{link.cell}`. Found it"
                f" unchanged {when} {link.tally.windows} calls and {updater.applied[param]} applied"
                f" updates. {why}",
                RuntimeWarning,
                stacklevel=4,
            )


def _why_it_rests(
    link: Link, updater: Updater, param: str, value: Tensor, surely: bool
) -> str | None:
    """Returns why updates after the first have moved nothing; ``None`` if that may be meant.

    Args:
        link: what is known of the cell.
        updater: the updater of its parameters.
        param: the name of the parameter.
        value: its value.
        surely: whether the first update alone has moved it; otherwise only a constraint that undoes
            changes is named.
    """
    zeros, zeroed = link.tally.looks.zeros(), updater.zeroed.get(param, 0)
    activity, silence = link.tally.looks.activity(), link.tally.looks.silence()
    known = why_zero(activity, zeros=zeros, zeroed=updater.applied[param] <= zeroed)
    if surely and known:
        return known
    constraints = updater.constraints_of(param)
    if fns := undoing(constraints, value):
        return undone_by(fns)
    if not (surely and constraints) or link.is_short or _at_limits(updater, param, value):
        return None
    if silence is not None and silence.lasts:
        return silence.told(link.cell)
    return f"Changes were 0 or lost in rounding: {_WHY}"


def _at_limits(updater: Updater, param: str, value: Tensor) -> bool:
    """Returns whether all weights are at a limit, as they may be once they have learned."""
    lower, upper = updater.limits(param)
    found = torch.zeros_like(value, dtype=torch.bool)
    for limit, compare in ((lower, torch.le), (upper, torch.ge)):
        if limit is not None:
            found |= compare(value, value.new_full((), limit))
    return bool(found.all())


def warn_of_tiny_changes(link: Link, updater: Updater) -> None:
    """Warns if many updates have moved no weight by more than next to nothing; waits.

    Args:
        link: what is known of the cell.
        updater: the updater of its parameters.
    """
    for param in link.params:
        applied, value = updater.applied.get(param, 0), updater.held.get(param)
        if link.tally.values is None or value is None or applied < ENOUGH or link.is_short:
            continue
        both = link.tally.values.since(
            param, value.detach(), corrected=bool(updater.constraints_of(param))
        )
        found = None if both is None else _tiny(updater, param, *both)
        if found and link.tally.warns("weights"):
            warnings.warn(
                f"`{link.rule}` should change `{param}` of cell `{link.cell}`. Found that"
                f" {applied} applied updates have moved {found}: raise"
                f" {quoted(rates_in(vars(link.h))) or 'the rates'}, unless it had learned before.",
                RuntimeWarning,
                stacklevel=4,
            )


def _tiny(updater: Updater, param: str, then: Tensor, now: Tensor) -> str | None:
    """Returns by how little all values have moved; ``None`` if by more, or not at all."""
    away = widened(now - then).abs()
    share = float(away.max() / widened(then).abs().max()) if then.numel() else 0.0
    if 0 < share < min(_NEAR, _SLOW * updater.applied[param]):
        return f"no weight by more than a share of {share:.0e} of the largest one"
    step = step_of_delays(updater.known_parent, param, then, now)
    if step is not None and share > 0:
        return f"no delay to another step of `dt = {step:g}`, to which the connection rounds them"
    return None


def warn_of_fallen_silent(link: Link) -> None:
    """Warns if neurons fired at first, and then no more; waits for the device.

    Args:
        link: what is known of the cell.
    """
    activity, silence = link.tally.looks.activity(), link.tally.looks.silence()
    if activity is None or silence is None or not (activity.spikes and silence.driven):
        return
    long = _PART * silence.since <= link.tally.windows and silence.expected >= _EXPECTED
    if long and silence.lasts and link.tally.warns("fell silent"):
        warnings.warn(
            f"`{link.rule}` learns nothing from neurons that are silent. {silence.told(link.cell)}",
            RuntimeWarning,
            stacklevel=4,
        )
