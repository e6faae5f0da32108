"""Whether the cells of a fit learn: what is counted of them, looked at once an epoch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterator, Sequence

import torch
from torch import Tensor

from lightning_accum.callbacks._findings import By, Counts, Weights, findings
from lightning_accum.callbacks._host import CellHost
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.cells.tally import why_nothing
from lightning_accum.distributed.shards import local
from lightning_accum.distributed.world import is_first
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.updates import Updater

_SAMPLE = 1 << 16  # weights of a parameter that are kept for comparison
_STILL = 1.002  # times the norm of an epoch before


class Health:
    """Warns of each cell that learns nothing, and has lines for the summary on what else is wrong.

    A batch costs a count. Cells are looked at when the first epoch ends, or before, after so many
    batches, and when the fit ends; at the end of other epochs there is a norm for each parameter.

    Args:
        host: whose cells these are.
        patience: after how many batches not to wait any longer for the end of the first epoch.
    """

    def __init__(self, host: CellHost, patience: int = 1000) -> None:
        self._host = host
        self._patience = patience
        self._batches = 0
        self._first: dict[str, int] | None = None  # windows at the first check, by cell
        self._first_batches = 0
        self._said: set[tuple[str, str]] = set()
        self._warned: set[str] = set()
        self._records: dict[tuple[str, str], _Record] = {}
        for name, _ in host.trainer.named_cells:
            tally = host.trainer.tally(name)
            if tally is not None:
                tally.begin(watched=True)
        for cell, updater, param in self._params():
            self._records[cell, param] = _Record(updater, param)

    @property
    def warned(self) -> Collection[str]:
        """The cells of which a warning has told."""
        return self._warned

    def batch_ended(self) -> None:
        """Counts a batch."""
        self._batches += 1

    def look_if_due(self, optimizers: Sequence[UpdateOptimizer], by: By) -> None:
        """Looks at the cells, if the first epoch is a long one."""
        if self._batches >= self._patience and self._first is None:
            self._look(optimizers, by, ended=False)

    def epoch_ended(self, optimizers: Sequence[UpdateOptimizer], by: By) -> None:
        """Looks at the cells if this is the first epoch; notes how large weights are.

        Args:
            optimizers: those that apply updates.
            by: who steps them.
        """
        for cell, updater, param in self._params():
            if (cell, param) in self._records:
                self._records[cell, param].epoch_ended(updater)
            else:  # a cell that was registered in the fit
                self._records[cell, param] = _Record(updater, param, late=True)
        if self._first is None and self._batches:
            self._look(optimizers, by, ended=False)

    def fit_ended(self, optimizers: Sequence[UpdateOptimizer], by: By) -> list[str]:
        """Looks at the cells, and gives the lines for the summary."""
        lines = self._look(optimizers, by, ended=True) if self._batches else []
        for name, _ in self._host.trainer.named_cells:
            tally = self._host.trainer.tally(name)
            if tally is not None:
                tally.watched = False
        return lines

    # ------------------------------------------------------------------ inside
    def _params(self) -> Iterator[tuple[str, Updater, str]]:
        for updater, cells in self._host.trainer.updaters.values():
            for name in cells:
                for param in self._host.trainer.params_of(name):
                    yield name, updater, param

    def _look(self, optimizers: Sequence[UpdateOptimizer], by: By, ended: bool) -> list[str]:
        """Warns, and gives the lines of findings that are not worth a warning."""
        lines = []
        for counts in self._counts(optimizers, by, ended):
            for cell, key, text, warns in findings(counts):
                if (cell, key) in self._said or not is_first():
                    continue
                if not warns:
                    lines.append(text)
                    continue
                self._said.add((cell, key))
                self._warned.add(cell)
                warnings.warn(text, RuntimeWarning, stacklevel=1)
        return lines

    def _counts(
        self, optimizers: Sequence[UpdateOptimizer], by: By, ended: bool
    ) -> Iterator[Counts]:
        trainer, held = self._host.trainer, set[int]().union(*(o.ids for o in optimizers))
        first, self._first = self._first, self._first or {}
        tallies = [trainer.tally(name) for name, _ in trainer.named_cells]
        learns = any(tally is not None and tally.windows for tally in tallies)
        for name, (cell, state) in trainer.named_cells:
            tally = trainer.tally(name)
            windows = None if tally is None else tally.windows
            if first is None:
                self._first[name] = windows or 0
            yield Counts(
                cell=name,
                batches=self._batches,
                windows=windows,
                late_batches=self._batches - self._first_batches if first is not None else 0,
                late_windows=(windows or 0) - self._first.get(name, 0),
                longest=0 if tally is None else tally.longest,
                activity=None if tally is None else tally.activity(),
                h=vars(getattr(state, "hyperparameters", Hyperparameters())),
                carry=self._host.carry,
                by=by,
                scale=max((g["lr"] for o in optimizers for g in o.param_groups), default=1.0),
                ended=ended,
                why_nothing=why_nothing(cell.connection, cell.neuron, lightning=by != "loop"),
                rests=learns and not (cell.connection.training and cell.neuron.training),
                weights=tuple(
                    self._records[cell_name, param].weights(updater, held)
                    for cell_name, updater, param in self._params()
                    if cell_name == name and (cell_name, param) in self._records
                ),
            )
        if first is None:
            self._first_batches = self._batches


class _Record:
    """A parameter as it was, to be compared with what it becomes.

    Of a large one a sample of weights is kept, evenly spaced, and for all of them two sums, which
    any change alters.

    Args:
        updater: the updater that applies its changes.
        name: the parameter.
        late: whether the fit has begun before.
    """

    def __init__(self, updater: Updater, name: str, late: bool = False) -> None:
        self.name = name
        self._late = late
        self._applied = 0 if late else updater.applied.get(name, 0)
        self._dropped = 0 if late else updater.skipped.get(name, 0)
        value = self._value(updater)
        self._shape = value.shape
        self._sample = _sample(value).clone()
        self._began = _sums(value)
        self._before = self._latest = self._began[0]  # at the ends of two epochs

    def epoch_ended(self, updater: Updater) -> None:
        """Notes the norm, to be compared with that of the next epoch."""
        self._before, self._latest = self._latest, _sums(self._value(updater))[0]

    def weights(self, updater: Updater, held: Collection[int]) -> Weights:
        """What is known of the parameter now; waits for the device."""
        name, value = self.name, self._value(updater)
        norm, total = (float(each) for each in _sums(value))
        began, began_total = (float(each) for each in self._began)
        moved: float | None = None
        if not self._late and value.shape == self._shape:
            moved = float((_sample(value) != self._sample).float().mean()) if value.numel() else 0.0
            if not moved and (norm, total) != (began, began_total):
                moved = 1 / value.numel()
        lower, upper = updater.limits(name)
        return Weights(
            name=name,
            applied=updater.applied.get(name, 0) - self._applied,
            dropped=updater.skipped.get(name, 0) - self._dropped,
            pending=not getattr(updater, name).empty,
            held=id(updater.target(name)) in held,
            moved=moved,
            growth=norm / began if began else None,
            grows=norm > _STILL * float(self._before),
            finite=math.isfinite(norm),
            began_finite=math.isfinite(began),
            bounded=upper is not None or updater.constrained(name),
            at_limits=_share_at(value, lower, upper),
            largest=float(value.abs().max()) if value.numel() else 0.0,
            dtype=value.dtype,
        )

    def _value(self, updater: Updater) -> Tensor:
        """The parameter, or this process' shard of it."""
        return local(updater.target(self.name).detach())


def _sample(value: Tensor) -> Tensor:
    return value.reshape(-1)[:: -(-value.numel() // _SAMPLE) or 1]


def _sums(value: Tensor) -> tuple[Tensor, Tensor]:
    """The norm and the sum of weights, without waiting for the device."""
    wide = value.to(torch.float32 if value.device.type == "mps" else torch.float64)
    norm: Tensor = torch.linalg.vector_norm(wide)
    return norm, wide.sum()


def _share_at(value: Tensor, lower: float | None, upper: float | None) -> float:
    at = torch.zeros_like(value, dtype=torch.bool)
    if lower is not None:
        at |= value <= value.new_full((), lower)
    if upper is not None:
        at |= value >= value.new_full((), upper)
    return float(at.float().mean()) if value.numel() else 0.0
