"""Where items enter."""

from __future__ import annotations

from typing import Any

from torchmetrics.utilities import rank_zero_warn

from lightning_accum.accumulators._flow import Ends, Flow
from lightning_accum.accumulators.pipe import Pipe
from lightning_accum.accumulators.split import Split


class Source(Flow):
    """Where what steps return enters: every pipe that ``**`` puts behind it hangs on it.

    Calling it sends an item down all pipes, and ``end()`` ends the iteration in all of them, their
    accumulators synchronised in one all-reduce. As an attribute of a LightningModule it moves to
    the device and is saved with the model.

    Args:
        module: a LightningModule, through which ``Log`` stages log; may be missing.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Max, Mean, Select, Source
        >>> source = Source()
        >>> loss = source ** Select(loss=0)
        >>> mean = loss ** Mean() ** print
        >>> largest = loss ** Max() ** print
        >>> source.run([(torch.tensor(1.0), "a"), (torch.tensor(3.0), "b")])
        tensor(2.)
        tensor(3.)
    """

    def __init__(self, module: Any = None) -> None:
        super().__init__()
        self.pipes = Split()
        self._epoch: int | None = None
        if module is not None:
            self.bind(module)

    def __pow__(self, other: Any) -> Pipe:
        """A pipe that hangs on this source."""
        pipe = Pipe(other)
        self.pipes.branches.append(pipe)
        return pipe._attach(self)

    def forward(self, item: Any) -> None:
        """Sends an item down all pipes.

        Args:
            item: what a step returned.
        """
        self._begin()
        self._check_epoch()
        self.pipes._step(item)

    def _check_epoch(self) -> None:
        """Warns where an epoch's items come before the last one's were ended."""
        for module in self._owner:
            epoch = getattr(module, "current_epoch", None)
            if self._epoch not in (None, epoch):
                rank_zero_warn(
                    f"A source should be ended with every epoch. Found items of epochs"
                    f" {self._epoch} and {epoch}, which are accumulated together: call `end()` in"
                    " `on_train_epoch_end`, or the hook of the stage that it is of."
                )
            self._epoch = epoch

    def _check_end(self) -> None:
        if not self.pipes.branches:
            rank_zero_warn(
                "A source should have a pipe. Found none, so that nothing comes of its items: put"
                " one behind it, as in `source ** Mean() ** Log('loss')`."
            )

    def _ends(self) -> Ends:
        self._epoch = None
        yield from self.pipes._ends()
        yield lambda: None

    def _forget(self) -> None:
        self._epoch = None
        self.pipes._forget()
