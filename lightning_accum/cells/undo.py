"""Restores a trainer after an interrupted batch."""

from __future__ import annotations

from lightning_accum.cells.trainer import CellTrainer


class Undo:
    """Remembers the state of a trainer before a batch is evaluated.

    Nothing is copied: an accumulator that had changes pending before the batch keeps those of the
    batch too.
    """

    def __init__(self, trainer: CellTrainer) -> None:
        self._carried = [(state, state.snapshot()) for state in trainer.cell_states.values()]
        self._empty = [
            accumulator
            for updater, _ in trainer.updaters.values()
            for name in updater.names
            if (accumulator := getattr(updater, name)).empty
        ]

    def undo(self) -> None:
        """Restores the remembered state."""
        for state, kept in self._carried:
            state.restore(kept)
        for accumulator in self._empty:
            accumulator.clear()
