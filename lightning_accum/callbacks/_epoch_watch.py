"""The check that each epoch of a fit has training batches."""

from __future__ import annotations

import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_warn

from lightning_accum.callbacks._finding import number


class EpochWatch:
    """Warns, once, of an epoch without training batches.

    An epoch in which training stops may have none.

    Attributes:
        may_be_empty: whether this epoch may have none, as the first one of a fit that resumes.
    """

    def __init__(self) -> None:
        self.may_be_empty = False
        self._warned = False
        self._begun = self._ended = self._before = 0  # batches of this epoch, and of earlier ones
        self._cut = 0  # epochs that the module ended after some batches

    def batch_begins(self) -> None:
        """Counts a batch that begins."""
        self._begun += 1

    def batch_ends(self) -> None:
        """Counts a batch that ends, which it does not if the module skips the rest of the epoch."""
        self._ended += 1

    def epoch_ends(self, trainer: pl.Trainer) -> None:
        """Warns if the epoch had no batch.

        Args:
            trainer: the Lightning trainer.
        """
        may, self.may_be_empty = self.may_be_empty or trainer.should_stop, False
        refused, batches = self._begun > self._ended, self._ended
        self._begun = self._ended = 0
        if batches or may or self._warned:
            self._cut += refused and batches > 0
            self._before += batches
            return
        self._warned = True
        where = (
            f"epoch {trainer.current_epoch}, after {number(self._before, 'batch')} in earlier ones"
            if self._before
            else "the first one"
        )
        why = (
            "`on_train_batch_start` returned -1, which skips the rest of the epoch: return from"
            " `training_step` to leave out a batch"
            if refused
            else "the loader gave none, as an iterator or a generator does that is used up: pass a"
            " DataLoader, or an iterable that begins again in each epoch"
        )
        rank_zero_warn(
            f"Each epoch of a fit should have training batches. Found none in {where}: {why}.",
            category=RuntimeWarning,
        )

    def lines(self) -> list[str]:
        """Returns a line on epochs that the module ended after some batches."""
        if not self._cut:
            return []
        return [
            f"`on_train_batch_start` returned -1 in {number(self._cut, 'epoch')}, which skips all"
            f" batches that were left, so that the fit had {self._before}: to leave out a single"
            " batch, return from `training_step`."
        ]
