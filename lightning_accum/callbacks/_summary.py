"""What is said of local learning at the end of a fit."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch
from torch import Tensor

from lightning_accum.callbacks._measure import Activity, Before, Values
from lightning_accum.callbacks._watcher import Watcher

_MOST = 0.9  # of neurons, or of weights
_LARGE = 0.1  # for the ratio of an update to its weights
_HEAD = ("cell", "parameter", "updates", "ratio", "at lower", "at upper", "silent")


class Summary(Watcher):
    """Gathers from measured steps, on the device, what is said when the fit ends."""

    def __init__(self) -> None:
        self._ratios: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}
        self._limits: dict[tuple[str, str], tuple[Tensor, Tensor]] = {}
        self._counts: dict[str, Tensor] = {}

    def saw(self, cell: str, activity: Activity) -> None:
        """Counts the spikes of each neuron."""
        counts = self._counts.get(cell)
        self._counts[cell] = activity.counts if counts is None else counts + activity.counts

    def applied(self, before: Before, after: Tensor, values: Values) -> None:
        """Adds up ratios, and keeps how many weights are at a limit."""
        key, ratio = (before.cell, before.name), values["ratio"]
        total, number = self._ratios.get(key, (torch.zeros_like(ratio), torch.zeros_like(ratio)))
        finite = ratio.isfinite()  # the first one of weights that were all zero is not
        self._ratios[key] = total + torch.where(finite, ratio, 0.0), number + finite
        self._limits[key] = values["at_lower"], values["at_upper"]

    def lines(
        self,
        steps: Mapping[tuple[str, str], int],
        rates: Sequence[str],
        further: Sequence[str] = (),
        warned: Collection[str] = (),
    ) -> list[str]:
        """A table, if anything was measured, and what to look at.

        Args:
            steps: how often updates were applied, by the names of cell and parameter.
            rates: names of the rule's rates, for advice.
            further: advice by others.
            warned: cells that are not advised on, for a warning has told what is wrong.
        """
        if not self._ratios:
            return ["Local learning:", *further] if further else []
        silent = {cell: float((n == 0).float().mean()) for cell, n in self._counts.items()}
        rows: list[Sequence[str]] = [_HEAD]
        advice: list[str] = []
        for (cell, name), (total, number) in self._ratios.items():
            ratio = float(total / number)
            lower, upper = (float(share) for share in self._limits[cell, name])
            shares = (lower, upper, silent.get(cell))
            shown = ("" if share is None else f"{share:.0%}" for share in shares)
            rows.append((cell, name, str(steps[cell, name]), f"{ratio:.1e}", *shown))
            if cell not in warned:
                advice += _advice_on_weights(f"{cell}.{name}", ratio, lower, upper, rates)
        advice += _advice_on_activity({k: v for k, v in silent.items() if k not in warned})
        return ["Local learning, by what the logging steps saw:", *_table(rows), *advice, *further]


def _advice_on_weights(
    label: str, ratio: float, lower: float, upper: float, rates: Sequence[str]
) -> Iterator[str]:
    if ratio >= _LARGE:
        which = " and ".join(f"`{name}`" for name in rates) or "the rates"
        yield f"An update changes `{label}` by {ratio:.0%}, on average: lower {which}."
    for share, side, part in ((lower, "lower", "depression"), (upper, "upper", "potentiation")):
        if share >= _MOST:
            yield (
                f"{share:.0%} of the weights of `{label}` sit at the {side} limit: weaken {part},"
                " or bound it softly, as with `bound_power`."
            )


def _advice_on_activity(silent: Mapping[str, float]) -> Iterator[str]:
    for cell, share in silent.items():
        if share >= _MOST:
            yield (
                f"{share:.0%} of the neurons of `{cell}` never fired: lower their threshold, or"
                " raise the rate of the input or the weights."
            )


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
