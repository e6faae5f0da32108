"""Warns of a learner that was given to no Trainer, while a Trainer fitted without one."""

from __future__ import annotations

import gc
import time
import warnings
from collections.abc import Iterator, Mapping

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from lightning_accum._ending import delete_at_exit, has_ended
from lightning_accum.cells.cell import CellSpec

_LEAST_AGE = 0.002  # seconds; no fit is shorter


class Forgotten:
    """Belongs to a learner, and warns when both are deleted if no Trainer had it.

    Args:
        name: the name of the learner.
        kind: the class of learners.
        cells: its cells, which a module has to have to count; ``None`` if any module counts.
    """

    def __init__(
        self, name: str, kind: type[Callback], cells: Mapping[str, CellSpec] | None = None
    ) -> None:
        self._name, self._kind = name, kind
        specs = () if cells is None else cells.values()
        self._paths = {path for spec in specs for path in (spec.connection, spec.neuron)}
        self._made = time.monotonic()
        self._waits = True
        delete_at_exit(self)

    def found(self) -> None:
        """Notes that a Trainer has the learner."""
        self._waits = False

    def __del__(self) -> None:
        waits, self._waits = vars(self).get("_waits", False), False
        if not waits or has_ended() or time.monotonic() - self._made < _LEAST_AGE:
            return
        for trainer in filter(_has_fitted, _trainers()):
            callbacks = trainer.callbacks  # type: ignore[attr-defined]
            paths = {path for path, _ in trainer.lightning_module.named_modules()}
            if self._paths <= paths and not any(isinstance(c, self._kind) for c in callbacks):
                warnings.warn(
                    f"The {self._kind.__name__} `{self._name}` should be among the callbacks of the"
                    " Trainer that fits. Found that no Trainer has it, and that"
                    f" `{type(trainer.lightning_module).__name__}` was fitted without one, so that"
                    " its rule learned nothing: pass it to `Trainer(callbacks=[...])`.",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return


def _trainers() -> Iterator[pl.Trainer]:
    """Yields the Trainers that exist; Lightning keeps no list of them."""
    for each in gc.get_referrers(pl.Trainer, *pl.Trainer.__subclasses__()):
        if isinstance(each, pl.Trainer):
            yield each


def _has_fitted(trainer: pl.Trainer) -> bool:
    loop = getattr(trainer, "fit_loop", None)  # none if the Trainer's arguments were rejected
    return loop is not None and loop.epoch_loop.batch_progress.total.completed > 0
