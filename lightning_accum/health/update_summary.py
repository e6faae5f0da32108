"""The summary of local learning at the end of a fit: a table, and lines of advice."""

from collections.abc import Collection, Mapping, Sequence
from math import nan
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import quoted
from lightning_accum._training_events import Values
from lightning_accum.health import advice

_HEAD = ("cell", "parameter", "updates", "ratio", "at lower", "at upper", "silent")
_SUMMED = ("pos_norm", "neg_norm")
_LATEST = ("weight_norm", "at_lower", "at_upper", "updates")


class Summary:
    """Sums up the measurements of a fit on the device, and returns a table and advice."""

    def __init__(self) -> None:
        # Of each parameter: sums over the updates that were measured, and the latest of some. Norms
        # and ratios, but for those to weights that were all zero, are sums over all updates: one
        # that was measured stands for those since the last one.
        self._found: dict[tuple[str, str], dict[str, Tensor | float]] = {}
        # Of the latest epoch with activity: the spikes of each neuron, in how many batches.
        self._counts: dict[str, tuple[Tensor, int]] = {}
        self._ended: set[str] = set()  # cells whose counts are of an earlier epoch

    def saw(self, cell: str, counts: Tensor) -> None:
        """Adds the spikes of each neuron in a batch."""
        before, batches = (0, 0) if cell in self._ended else self._counts.get(cell, (0, 0))
        self._ended.discard(cell)
        self._counts[cell] = counts + before, batches + 1

    def epoch_ended(self) -> None:
        """Counts the spikes of the next epoch from zero."""
        self._ended = set(self._counts)

    def measured(self, cell: str, name: str, values: Values) -> None:
        """Adds the measurements of an update, on their device."""
        row: dict[str, Tensor | float] = {"measured": 1.0, **{n: values[n] for n in _SUMMED}}
        known = self._found.get((cell, name)) or dict.fromkeys((*row, *_LATEST), 0.0)
        row = {n: known[n] + v for n, v in row.items()} | {n: values[n] for n in _LATEST}
        ratio, passed = torch.as_tensor(values["ratio"]), values["updates"] - known["updates"]
        now = {"update_norm": torch.as_tensor(values["update_norm"]), "finite": ratio.isfinite()}
        now["ratio"] = ratio.nan_to_num(0.0, 0.0, 0.0)
        for each, value in now.items():
            row |= {each: known.get(each, 0.0) + value * passed, f"last_{each}": value}
        self._found[cell, name] = row

    def lines(
        self,
        updates: Mapping[tuple[str, str], int],  # of each parameter of the cells
        settings: Mapping[str, Mapping[str, Any]],  # of each cell
        rates: Collection[str],
        warned: Collection[str] = (),  # cells of which a warning has told the mistake
        further: Sequence[str] = (),
    ) -> list[str]:
        """Returns the lines of the table, if anything was measured, and of advice; waits."""
        if not self._found:
            return ["Local learning:", *further] if further else []
        silent = {cell: float((n == 0).float().mean()) for cell, (n, _) in self._counts.items()}
        which, rows = quoted(rates) or "the rates", list[Sequence[str]]([_HEAD])
        found, last = list[str](), list[str]()
        for (cell, name), count in updates.items():
            u = {k: float(v) for k, v in self._found.get((cell, name), {}).items()}
            if not u:
                continue
            for each in ("update_norm", "finite", "ratio"):  # in the updates since the last one
                u[each] += (count - u["updates"]) * u[f"last_{each}"]
            u |= {"updates": count, "ratio": u["ratio"] / u["finite"] if u["finite"] else nan}
            shares = (u["at_lower"], u["at_upper"], silent.get(cell))
            shown = ("" if share is None else f"{share:.0%}" for share in shares)
            rows.append((cell, name, str(count), f"{u['ratio']:.1e}", *shown))
            if cell not in warned:
                found += advice.of_updates(f"{cell}.{name}", u, which, settings.get(cell, {}))
                last += advice.one_sided(f"{cell}.{name}", u, settings.get(cell, {}))
        for cell, share in silent.items():
            found += [] if cell in warned else advice.silent(cell, share, self._counts[cell][1])
        about = "Local learning, by updates 1, 2, 4, 8, ... and those of logging steps:"
        return [about, *_in_columns(rows), *found, *last, *further]


def _in_columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = ([text.ljust(n) for text, n in zip(row, widths, strict=True)] for row in rows)
    return ["  ".join(row).rstrip() for row in padded]
