"""Where items enter."""

from __future__ import annotations

from typing import Any

from lightning_accum.accumulators._flow import Flow
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
        self.pipes._step(item)

    def _end(self) -> None:
        self.pipes._end()
