"""Takes back what an interrupted batch leaves behind."""

from __future__ import annotations

from lightning_accum.cells.state import CellState
from lightning_accum.cells.trainer import CellTrainer


class Undo:
    """Remembers, before a batch is evaluated, what a trainer carries and has pending.

    Nothing is copied: if something was pending already, the batch's part of it stays.

    Args:
        trainer: the trainer.
    """

    def __init__(self, trainer: CellTrainer) -> None:
        self._carried = [
            (state, state.snapshot()) for _, state in trainer.cells if isinstance(state, CellState)
        ]
        self._empty = [
            accumulator
            for updater, _ in trainer.updaters.values()
            for name in updater.names
            if (accumulator := getattr(updater, name)).empty
        ]

    def undo(self) -> None:
        """Brings it back."""
        for state, kept in self._carried:
            state.restore(kept)
        for accumulator in self._empty:
            accumulator.clear()
