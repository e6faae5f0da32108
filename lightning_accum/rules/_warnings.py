"""Warns if a rule that is called without a callback learns nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence

from torch import Tensor

from lightning_accum.cells.single_steps import only_single_steps
from lightning_accum.cells.tally import Tally
from lightning_accum.engine.recording import Given
from lightning_accum.nn.linear import delays_beyond
from lightning_accum.rules._link import Link
from lightning_accum.rules._options import moving
from lightning_accum.updates import Accumulator, Updater

_FEW, _MANY = 8, 16  # calls with the same reward or error, and without a negative one


class CallsWithoutCells:
    """Warns, once, of calls of a rule that has no cells.

    Args:
        rule: the name of the rule.
    """

    def __init__(self, rule: str) -> None:
        self._rule, self._told = rule, False

    def note(self) -> None:
        """Notes such a call."""
        if self._told:
            return
        self._told = True
        warnings.warn(
            f"`{self._rule}` should have a cell to train. Found none in a call of it: register each"
            " connection and its neuron, `rule.register_cell(name, Cell(connection, neuron))`.",
            RuntimeWarning,
            stacklevel=5,
        )


def warn_of_hand_update(rule: str, tallies: Iterable[Tally]) -> None:
    """Warns, once, that changes are applied by hand while a callback does so too.

    Args:
        rule: the name of the rule.
        tallies: the counts of its cells.
    """
    found = [tally.applied_by_hand() for tally in tallies]  # of all cells, so that it warns once
    if any(found):
        warnings.warn(
            f"`{rule}` should be called and applied by the CellTrainerCallback or FabricCellTrainer"
            " that it was given to. Found a call of its `update()` during their fit: leave out"
            " `rule()` and `rule.update()`, because their `lr`, schedule and statistics miss what"
            " is applied there.",
            UserWarning,
            stacklevel=4,
        )


def note_inputs(rule: str, given: Given, tallies: Sequence[Tally]) -> None:
    """Notes the arguments of a rule's call; warns, at the first window, of those it has not read.

    Args:
        rule: the name of the rule.
        given: the arguments.
        tallies: the counts of the cells that had a window.
    """
    unread = given.unread
    if not tallies[0].watched:  # the callback notes them too
        read = [(name, value) for name, value in given.unnoted() if name not in unread]
        tallies[0].inputs.note({n: v for n, v in read if isinstance(v, (Tensor, float, int))})
    if unread and any(tally.windows == 1 for tally in tallies):
        warnings.warn(
            f"`{rule}` should be called with what its terms read. Found {unread}, which they"
            " do not: leave it out, correct its name, or take a rule that learns from it, such as"
            " `MSTDP` from a `reward` and `EProp` from an `error`.",
            UserWarning,
            stacklevel=4,
        )


def warn_of_unused(link: Link) -> None:
    """Warns if a rule was never called, or nothing of what it returned was applied.

    Args:
        link: what is known of the cell.
    """
    tally, steps = link.tally, link.tally.drops.steps + link.steps
    unapplied = [] if link.updater is None else _unapplied(link.updater, link.params)
    most = max(unapplied, key=lambda each: each.unused, default=None)
    if tally.never_called(steps):
        found = f"{steps} steps recorded, and no call: call `rule()` after each batch"
    elif most is not None and tally.never_applied(most.unused):
        found = f"{tally.windows} calls, and none applied: call `rule.update()` after `rule()`"
        if most.cleared:
            found = (
                f"{most.cleared} changes of `{most.name}` cleared, and none applied: call"
                " `rule.update()` before `updater.clear()` or `del`, or leave these out, for an"
                " update empties what it has applied"
            )
        most.told = True  # it is said
    else:
        return
    warnings.warn(
        f"`{link.rule}` should have changed cell `{link.cell}` by now. Found {found}, or add a"
        " CellTrainerCallback to the Trainer, which does both.",
        RuntimeWarning,
        stacklevel=5,
    )


def _unapplied(updater: Updater, params: Iterable[str]) -> list[Accumulator]:
    """Returns the accumulators of parameters to which nothing was ever applied."""
    applied = updater.applied
    return [getattr(updater, p) for p in params if p in updater.names and not applied.get(p)]


def warn_of_single_steps(link: Link) -> bool:
    """Warns, and returns whether it did, if all windows were one step, with new traces in each.

    Args:
        link: what is known of the cell.
    """
    rule, cell, h, tally, *_ = link
    warns = only_single_steps(tally, moving(h))
    if warns:
        warnings.warn(
            f"`{rule}` should pair spikes of different steps. Found {tally.windows} windows of cell"
            f" `{cell}`, each of one step, with traces that began at zero: call the rule after the"
            " whole sequence; or in every step with `carry=True`, and `clear()` after the sequence."
            " If the modules get whole sequences, pass `time_dim=0`, and time first:"
            " call `x.transpose(0, 1)` if a loader gives the batch first.",
            RuntimeWarning,
            stacklevel=4,
        )
    return warns


def warn_of_delays(link: Link) -> None:
    """Warns if a rule without a callback has trained delays that the connection cannot keep.

    Args:
        link: what is known of the cell.
    """
    connection = link.connection
    for param in () if connection is None or link.tally.watched else link.params:
        text = delays_beyond(connection, param)
        if text and link.tally.warns("delays"):
            warnings.warn(f"The delays of cell `{link.cell}` {text}", RuntimeWarning, stacklevel=5)


def warn_of_twin(rule: str, cell: str, other: str) -> None:
    """Warns if a cell is registered twice with equal settings, so that it learns twice as fast.

    Args:
        rule: the name of the rule.
        cell: the name of the cell.
        other: the name under which it was registered before.
    """
    warnings.warn(
        f"The connection and the neuron of cell `{cell}` should be registered once with the same"
        f" settings. Found them in cell `{other}` of `{rule}` too, so that they learn twice as"
        " fast: leave one out, or raise the rates.",
        UserWarning,
        stacklevel=4,
    )


def warn_of_pending(link: Link) -> None:
    """Warns if many changes of a cell are pending and none was ever applied.

    Args:
        link: what is known of the cell.
    """
    rule, cell, h, tally, updater, _ = link
    if updater is None:
        return
    for param in h.params:
        accumulator: Accumulator = getattr(updater, param)
        if updater.applied.get(param):
            continue
        if accumulator.cleared:
            warn_of_unused(link)
        elif tally.long_pending(accumulator.contributions):
            accumulator.told = True  # it is said
            warnings.warn(
                f"The changes that `{rule}` makes for cell `{cell}` should be applied from time to"
                f" time. Found those of {tally.windows} windows pending for `{param}`, and none"
                " ever applied: call `update()` on the rule, or `step()` on the FabricCellTrainer"
                " or the UpdateOptimizer.",
                RuntimeWarning,
                stacklevel=5,
            )


def warn_of_inputs(link: Link) -> None:
    """Warns if a reward or an error was always the same, or never negative; waits for the device.

    Args:
        link: what is known of the cell.
    """
    inputs = link.tally.inputs
    if inputs.told or link.is_short:
        return
    lines = inputs.lines(unmoved=True, unit="calls", few=_FEW, many=_MANY)
    if lines and link.tally.warns("inputs"):
        inputs.told = True
        for line in lines:
            warnings.warn(line, RuntimeWarning, stacklevel=5)
