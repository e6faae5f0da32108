"""The check that a module steps its own UpdateOptimizer as often as the callback was told."""

from __future__ import annotations

from lightning.pytorch.utilities import rank_zero_warn
from torch.optim import Optimizer


class OwnSteps:
    """Counts the batches from one step of an optimizer to its next one in an epoch.

    Args:
        every: the number of batches that the user passed; ``None`` to check nothing.

    Example:
        >>> from torch import nn
        >>> from lightning_accum.optim import UpdateOptimizer
        >>> optimizer = UpdateOptimizer(nn.Linear(2, 1).parameters())
        >>> steps = OwnSteps(every=2)
        >>> for i in range(6):
        ...     steps.batch_begins(i, last=i == 5)
        ...     if i % 2:
        ...         steps.stepped(optimizer)
    """

    def __init__(self, every: int | None) -> None:
        self._every = every
        self._batch, self._last = 0, False
        self._stepped: dict[int, int] = {}  # by the optimizer's id: the batch of its last step

    def batch_begins(self, batch: int, last: bool) -> None:
        """Notes which batch of the epoch it is.

        Args:
            batch: its index.
            last: whether it is the epoch's last one, whose group may be a smaller one.
        """
        if not batch:
            self._stepped.clear()
        self._batch, self._last = batch, last

    def stepped(self, optimizer: Optimizer) -> None:
        """Warns if another number of batches lies between two steps than the user passed."""
        if self._every is None:
            return
        found = self._batch - self._stepped.get(id(optimizer), self._batch)
        self._stepped[id(optimizer)] = self._batch
        if not found or found == self._every or (self._last and found < self._every):
            return
        rank_zero_warn(
            "Argument `apply_every_n_batches` should be the number of batches between two steps of"
            f" the module's own UpdateOptimizer, which it does not change. Found {self._every}, and"
            f" {found} from one step to the next: pass `apply_every_n_batches={found}`, or step it"
            f" after every {self._every} batches, in automatic optimization with"
            f" `accumulate_grad_batches={self._every}` of the Trainer."
        )
        self._every = None  # say it once
