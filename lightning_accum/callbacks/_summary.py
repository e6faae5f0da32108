"""The summary of local learning at the end of a fit."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from lightning_accum._checks import quoted
from lightning_accum.callbacks._cell_trainer_host import CellHost
from lightning_accum.callbacks._measurements import Activity, Before, Report, Values, Watcher
from lightning_accum.engine.rule import rates_in
from lightning_accum.health.advice import sign_first
from lightning_accum.health.rules import has_both_signs, rule_of
from lightning_accum.health.watch import Health
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.sparse.kernel_library import why_not

_MOST = 0.9  # share of silent neurons, or of weights at a limit, that deserves advice
_MEASURED = 3  # updates that are needed for advice
_LOST = 0.5  # share of a change, lost in rounding, that deserves advice
_LARGE = 0.1  # ratio of an update to its weights that deserves advice
_HEAD = ("cell", "parameter", "updates", "ratio", "at lower", "at upper", "silent")


class Summary(Watcher):
    """Sums up the measurements of a fit on the device, and returns a table and advice."""

    def __init__(self) -> None:
        # Of each parameter: the sums of these over all updates that were measured. Infinite ratios,
        # of weights that were all zero, and losses of updates with an `lr` of 0 are left out.
        self._sums: dict[tuple[str, str], dict[str, Tensor | float]] = {}
        self._latest: dict[tuple[str, str], Values] = {}
        # Of the latest epoch with activity: the spikes of each neuron, in how many batches.
        self._counts: dict[str, tuple[Tensor, int]] = {}
        self._ended: set[str] = set()  # cells whose counts are of an earlier epoch

    def saw(self, cell: str, activity: Activity, logs: bool) -> None:
        """Adds the spikes of each neuron in a batch."""
        before, batches = (0, 0) if cell in self._ended else self._counts.get(cell, (0, 0))
        self._ended.discard(cell)
        self._counts[cell] = activity.counts + before, batches + 1

    def epoch_ended(self) -> None:
        """Counts the spikes of the next epoch from zero."""
        self._ended = set(self._counts)

    def applied(self, before: Before, after: Tensor, values: Values) -> None:
        """Adds the measurements of an update, on their device."""
        key, ratio = (before.cell, before.name), torch.as_tensor(values["ratio"])
        lost, wanted = before.lost(after) if float(values["lr"]) else (0.0, 0.0)
        row: dict[str, Tensor | float] = {"updates": 1.0, "lost": lost, "wanted": wanted}
        row |= {"ratio": ratio.nan_to_num(0.0, 0.0, 0.0), "finite": ratio.isfinite()}
        row |= {name: values[name] for name in ("pos_norm", "neg_norm", "update_norm")}
        known = self._sums.get(key, dict.fromkeys(row, 0.0))
        self._sums[key] = {name: known[name] + value for name, value in row.items()}
        self._latest[key] = values

    def sums(self) -> Iterator[tuple[str, str, dict[str, float]]]:
        """Yields the sums of each parameter; waits for the device."""
        for key, sums in self._sums.items():
            yield *key, {name: float(value) for name, value in sums.items()}

    def one_sided(
        self, cells: Collection[str], steps: Mapping[tuple[str, str], int]
    ) -> Iterator[str]:
        """Yields advice on parts that were always zero."""
        for cell, name, sums in self.sums():
            up, down, count = sums["pos_norm"] > 0, sums["neg_norm"] > 0, sums["updates"]
            if cell in cells and count >= _MEASURED and up != down:
                never, only = ("depression", "potentiated") if up else ("potentiation", "depressed")
                yield (
                    f"The rule only {only} `{cell}.{name}` in the {count:.0f} updates that were"
                    f" measured, of {steps.get((cell, name), 0)}, although it has terms of"
                    f" {never}: look at its thresholds, at its reward or its"
                    " error, and at the activity of both sides."
                )

    def lines(
        self,
        steps: Mapping[tuple[str, str], int],
        rates: Sequence[str],
        further: Sequence[str] = (),
        warned: Collection[str] = (),
        signs: Mapping[str, str] | None = None,  # of a cell, how its remedies begin
    ) -> list[str]:
        """Returns the lines of the table, if anything was measured, and of advice."""
        if not self._sums:
            return ["Local learning:", *further] if further else []
        silent = {cell: float((n == 0).float().mean()) for cell, (n, _) in self._counts.items()}
        rows: list[Sequence[str]] = [_HEAD]
        advice: list[str] = []
        which = quoted(rates) or "the rates"
        for cell, name, sums in self.sums():
            if (cell, name) not in steps:  # the cell was deleted
                continue
            latest = {key: float(value) for key, value in self._latest[cell, name].items()}
            ratio = sums["ratio"] / sums["finite"] if sums["finite"] else math.nan
            shares = (latest["at_lower"], latest["at_upper"], silent.get(cell))
            shown = ("" if share is None else f"{share:.0%}" for share in shares)
            rows.append((cell, name, str(steps[cell, name]), f"{ratio:.1e}", *shown))
            if cell not in warned:
                sign = (signs or {}).get(cell, "")
                advice += _advice(cell, name, ratio, sums, latest, which, sign)
        for cell, share in silent.items():
            if cell not in warned and share >= _MOST:
                advice.append(
                    f"{share:.0%} of the neurons of `{cell}` did not fire in the"
                    f" {self._counts[cell][1]} batches of the last epoch that were looked at: lower"
                    " their threshold, or raise the rate of the input or the weights."
                )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        padded = ([text.ljust(n) for text, n in zip(row, widths, strict=True)] for row in rows)
        table = ["  ".join(row).rstrip() for row in padded]
        return ["Local learning, by what the logging steps saw:", *table, *advice, *further]


def summary_lines(
    summary: Summary,
    report: Report,
    host: CellHost,
    optimizers: Iterable[UpdateOptimizer],
    health: Health | None,
) -> list[str]:
    """Returns the lines that sum up a fit, or no lines if there is nothing to print."""
    # A warning has named the mistake of the cells that are left out.
    advice, warned = ([], set[str]()) if health is None else (health.lines, health.said)
    steps = {
        (cell, name): report.updates[id(optimizer)]
        for optimizer in optimizers
        for cell, updater in host.updaters.items()
        for name in updater.names
        if id(updater.changes.target(name)) in optimizer.ids
    }
    rule = rule_of(host.trainer)
    named = rule is not None and not report.exports  # else an optimizer has a rate too
    rates = [*rates_in(vars(rule))] if named else []
    of = {cell: state.settings for cell, state in host.trainer.cell_states.items()}
    both = {cell for cell, h in of.items() if cell not in warned and has_both_signs(h)}
    signs = {cell: sign_first(h) for cell, h in of.items()}
    advice = [*summary.one_sided(both, steps), *advice]
    lines, reason = summary.lines(steps, rates, advice, warned, signs), why_not()
    if lines and reason is not None:
        lines.append(
            f"Sums over spikes ran in plain torch instead of the compiled kernel: {reason}."
        )
    return lines


def _advice(
    cell: str,
    name: str,
    ratio: float,
    sums: dict[str, float],
    latest: dict[str, float],
    rates: str,
    sign: str,
) -> Iterator[str]:
    """Yields advice on updates of weights that are too large, too small, or at a limit."""
    # Weights that began near zero had large ratios at first. What a bias should be compared with is
    # the input of its neurons: its own norm may well stay near zero.
    moved = sums["update_norm"] / sums["updates"]
    if ratio >= _LARGE and moved >= _LARGE * latest["weight_norm"] and name != "bias":
        yield f"An update changes `{cell}.{name}` by {ratio:.0%}, on average: {sign}lower {rates}."
    for side, part in (("lower", "depression"), ("upper", "potentiation")):
        share = latest[f"at_{side}"]
        if share >= _MOST:
            yield (
                f"{share:.0%} of the weights of `{cell}.{name}` sit at the {side} limit:"
                f" {sign if side == 'upper' else ''}weaken {part}, or bound it softly, as with"
                ' `fullbound("power", 1.0, 0.0)`.'
            )
    if sums["lost"] >= _LOST * sums["wanted"] > 0:
        yield (
            f"{sums['lost'] / sums['wanted']:.0%} of the change of `{cell}.{name}` was lost,"
            " because it was smaller than a step of the weights' dtype, or because a constraint"
            f" undid it: keep the weights in float32, raise {rates}, or look at the constraint."
        )
