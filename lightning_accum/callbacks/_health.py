"""Decides when the cells of a fit are checked, and warns of those that learn nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress

from torch import nn

from lightning_accum.callbacks._activity_findings import ELSEWHERE
from lightning_accum.callbacks._all_findings import findings, undefined_parameters
from lightning_accum.callbacks._counts import By, Counts, is_undefined
from lightning_accum.callbacks._dropped_updates import DroppedUpdates
from lightning_accum.callbacks._first_batches import Watch, first_watches
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._parameter_record import ParameterRecord
from lightning_accum.callbacks._rate_watch import RateWatch
from lightning_accum.callbacks._replaced_modules import outside
from lightning_accum.callbacks._undone_findings import set_back
from lightning_accum.callbacks._update_looks import UpdateLooks
from lightning_accum.cells.input_watch import InputWatch
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.cells.tally import Tally
from lightning_accum.cells.why_nothing import why_nothing
from lightning_accum.distributed.world import is_first
from lightning_accum.optim import UpdateOptimizer
from lightning_accum.updates import Updater

_RECORDED = {"loop": "inside `with learner.batch():`"}  # where, unless in a training step


class Health:
    """Warns of each cell that learns nothing, and returns advice for the summary.

    The cells are checked after the first batch and the first epoch, or ``patience`` batches, and
    when the fit ends. A batch costs one addition, another epoch one norm for each parameter.

    Args:
        host: the host of the cells.
        model: the model that is trained, if it is known.
        patience: number of batches after which the check does not wait for an epoch's end.
        hosts: the hosts of all callbacks of the fit; the first one checks the rest of the model.
        inputs: what is known of the inputs of the rule.
        rates: what is known of the rates with which updates are applied.
    """

    def __init__(
        self,
        host: CellHost,
        model: nn.Module | None = None,
        patience: int = 1000,
        hosts: Sequence[CellHost] = (),
        inputs: InputWatch | None = None,
        rates: RateWatch | None = None,
    ) -> None:
        self._inputs, self._rates = inputs or InputWatch(), rates or RateWatch()
        self._host = host
        self._model = model
        self._whole = not hosts or hosts[0] is host
        self._patience = patience
        self._batches, self._failed = 0, False
        self._first: dict[str, int] | None = None  # windows at the first check, by cell
        self._first_batches = 0
        self._said: set[tuple[str, str]] = set()
        self.warned: set[str] = set()  # the cells of which a warning was given
        self.drops = DroppedUpdates(host)
        params = self._params()
        self._records = {(cell, param): ParameterRecord(u, param) for cell, u, param in params}
        self._looks = UpdateLooks(self._records, [each for each in hosts if each is not host])
        for tally in self._tallies():
            tally.begin(watched=True, clears=not host.carry)
        self._watches: list[Watch] = first_watches(host, model, hosts)  # of the first batches

    def watch(self) -> None:
        """Registers the hooks of the checks of the first batches, which this object removes."""
        for watch in self._watches:
            watch.register()

    @property
    def unmoved(self) -> bool:
        """Whether a warning was given that a cell has not changed."""
        return any(key.startswith("unmoved ") for _, key in self._said)

    def batch_ended(self) -> None:
        """Counts a batch."""
        self._batches += 1
        self._watches = [watch for watch in self._watches if watch.batch_ended()]

    def update_begins(self) -> None:
        """Notes the weights before an update."""
        self._looks.begin(self._recorded())

    def update_ended(self) -> None:
        """Notes the weights after an update."""
        self._looks.end(self._recorded())

    def look_if_due(self, optimizers: Sequence[UpdateOptimizer], by: By) -> None:
        """Checks the cells if the first epoch is a long one.

        Args:
            optimizers: the optimizers that apply updates.
            by: who steps them.
        """
        if self._batches >= self._patience and self._first is None:
            self._look(optimizers, by, ended=False)

    def epoch_ended(self, optimizers: Sequence[UpdateOptimizer], by: By) -> None:
        """Notes the norms of weights, and checks the cells if this is the first epoch.

        Args:
            optimizers: the optimizers that apply updates.
            by: who steps them.
        """
        for cell, updater, param in self._params():
            if (cell, param) in self._records:
                self._records[cell, param].epoch_ended(updater)
            else:  # the cell was registered during the fit
                self._records[cell, param] = ParameterRecord(updater, param, late=True)
        for tally in self._tallies():
            tally.looks.look()  # at the first window of the next epoch
        self._looks.epoch_ended()
        if self._first is None and self._batches:
            self._look(optimizers, by, ended=False)

    def fit_ended(self, optimizers: Sequence[UpdateOptimizer], by: By) -> list[str]:
        """Checks the cells, and returns lines for the summary.

        Args:
            optimizers: the optimizers that apply updates.
            by: who steps them.
        """
        lines = self._look(optimizers, by, ended=True) if self._batches else []
        self._leave()
        return lines

    def fit_failed(self, optimizers: Sequence[UpdateOptimizer], by: By) -> None:
        """Checks the cells of a fit that an exception or Ctrl-C stopped.

        Args:
            optimizers: the optimizers that apply updates.
            by: who steps them.
        """
        self._leave()
        self._failed = True
        if self._batches:
            # If the device has failed, the check fails too; the user should see the first error.
            with suppress(RuntimeError):
                self._look(optimizers, by, ended=False)

    def fit_closed(self) -> None:
        """Warns of weights that were set back to their first values after training had ended."""
        for cell, updater, param in self._recorded():
            finding = set_back(cell, param, "back after training, to what it was when it began")
            said = (cell, finding.key) in self._said
            if not said and is_first() and self._records[cell, param].is_back(updater):
                warnings.warn(finding.text, RuntimeWarning, stacklevel=1)

    # ------------------------------------------------------------------ inside
    def _tallies(self) -> Iterator[Tally]:
        trainer = self._host.trainer
        return (t for name, _ in trainer.named_cells if (t := trainer.tally(name)) is not None)

    def _leave(self) -> None:
        for watch in self._watches:
            watch.remove()
        for tally in self._tallies():
            tally.leave()
        for _, updater, param in self._params():
            getattr(updater, param).told = True

    def _params(self) -> Iterator[tuple[str, Updater, str]]:
        for updater, cells in self._host.trainer.updaters.values():
            for name in cells:
                for param in self._host.trainer.params_of(name):
                    yield name, updater, param

    def _recorded(self) -> Iterator[tuple[str, Updater, str]]:
        return (each for each in self._params() if (each[0], each[2]) in self._records)

    def _look(self, optimizers: Sequence[UpdateOptimizer], by: By, ended: bool) -> list[str]:
        """Warns of mistakes, and returns the texts of the other findings."""
        lines, known = [], {id(updater.target(param)) for _, updater, param in self._params()}
        model = self._model if self._whole else None
        others = [] if model is None else list(undefined_parameters(model, known))
        for found in (*map(findings, self._counts(optimizers, by, ended)), others):
            for cell, key, text, warns in found:
                if (cell, key) in self._said or not (is_first() or key == ELSEWHERE):
                    continue
                if not warns:
                    lines.append(text)
                    continue
                self._said.add((cell, key))
                self.warned.add(cell)
                warnings.warn(text, RuntimeWarning, stacklevel=1)
        return lines

    def _counts(
        self, optimizers: Sequence[UpdateOptimizer], by: By, ended: bool
    ) -> Iterator[Counts]:
        """Yields what is known of each cell; waits for the device."""
        of_loop = (id(u.target(p)) for _, u, p in self._params() if by == "loop")
        trainer, rates = self._host.trainer, self._rates.rates(optimizers, of_loop)
        first, self._first = self._first, self._first or {}
        learns = any(tally.windows for tally in self._tallies())
        for name, (cell, state) in trainer.named_cells:
            counted, tally = trainer.tally(name), trainer.tally(name) or Tally()  # without counts
            windows = None if counted is None else counted.windows
            if first is None:
                self._first[name] = windows or 0
            yield Counts(
                cell=name,
                batches=self._batches,
                windows=windows,
                unevaluated=trainer.recorded_steps(name) if by == "loop" else 0,
                late_batches=self._batches - self._first_batches if first is not None else 0,
                late_windows=(windows or 0) - self._first.get(name, 0),
                idle=tally.idle,
                longest=tally.longest,
                activity=tally.looks.activity(),
                course=tally.looks.course(),
                target=trainer.held_rate(name),
                rectified=trainer.rectified,
                silence=tally.looks.silence(),
                h=vars(getattr(state, "hyperparameters", Hyperparameters())),
                carry=self._host.carry or tally.joined,
                resized=tally.resized,
                by=by,
                zeros=self._inputs.zeros(),
                ended=ended,
                failed=self._failed,
                why_nothing=why_nothing(
                    *(cell.connection, cell.neuron),
                    where=_RECORDED.get(by, "in `training_step`"),
                    model=self._model,
                    dropped=0 if windows else tally.drops.steps,
                    rule_trains=trainer.training,
                ),
                outside=outside(cell, self._model),
                rests=learns and not (cell.connection.training and cell.neuron.training),
                undefined=is_undefined(cell.neuron),
                why_unmoved=trainer.why_unmoved(name),
                weights=tuple(
                    self._records[name, param].weights(updater, rates, trainer.weight_range(name))
                    for cell_name, updater, param in self._recorded()
                    if cell_name == name
                ),
            )
        if first is None:
            self._first_batches = self._batches
