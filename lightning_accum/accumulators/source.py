"""The source of pipes, where items enter."""

from __future__ import annotations

from typing import Any

from torchmetrics.utilities import rank_zero_warn

from lightning_accum.accumulators._flow import Flow
from lightning_accum.accumulators._links import Ends
from lightning_accum.accumulators.pipe import Pipe
from lightning_accum.accumulators.split import Split


class Source(Flow):
    """The entrance of several pipes: each pipe that ``**`` puts behind it is attached to it.

    Calling it sends an item down all pipes, and ``end()`` ends the iteration in all of them, with
    their accumulators synchronised in one all-reduce. As an attribute of a LightningModule it moves
    to the device and is saved with the model.

    Args:
        module: the LightningModule through which ``Log`` stages log; optional.

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
        self._link = self.pipes.link()
        self._epoch: int | None = None
        self._training: bool | None = None
        self._told: set[str] = set()
        if module is not None:
            self.bind(module)

    def __pow__(self, other: Any) -> Pipe:
        """Returns a pipe that is attached to this source."""
        pipe = Pipe(other)
        self.pipes.branches.append(pipe)
        return pipe.attach_to(self)

    def forward(self, item: Any) -> None:
        """Sends an item down all pipes.

        Args:
            item: the result of a step.
        """
        self.begin()
        self._check_epoch()
        self._link.step(item)

    def _check_epoch(self) -> None:
        """Warns if items of two epochs, or of training and validation, are accumulated together."""
        for module in self._owner:
            epoch = getattr(module, "current_epoch", None)
            if self._epoch not in (None, epoch):
                self._warn(
                    "epochs",
                    f"A source should be ended with every epoch. Found items of epochs"
                    f" {self._epoch} and {epoch}, which are accumulated together: call `end()` in"
                    " `on_train_epoch_end`, or in the corresponding hook of another stage.",
                )
            self._epoch = epoch
            training = getattr(module, "training", None)
            if self._training not in (None, training):
                self._warn(
                    "stages",
                    "A source should have items of training, or of validation. Found items of both,"
                    " which are accumulated together: make a source for each, or call `end()` in"
                    " `on_train_epoch_end` and in `on_validation_epoch_start`.",
                )
            self._training = training

    def _warn(self, kind: str, text: str) -> None:
        """Warns once of each kind of mistake."""
        if kind not in self._told:
            rank_zero_warn(text)
        self._told.add(kind)

    def bind_stages(self, module: Any) -> None:
        """Binds all pipes to a module."""
        self._link.bind(module)

    def check(self) -> None:
        """Warns if there is no pipe, and of results that the pipes would lose."""
        self._link.begin()
        if not self.pipes.branches:
            rank_zero_warn(
                "A source should have a pipe. Found none, so that its items are lost: put one"
                " behind it, as in `source ** Mean() ** Log('loss')`."
            )

    def ends(self) -> Ends:
        """Yields the calls that send the results of all pipes on."""
        self._epoch = self._training = None
        yield from self._link.ends()
        yield lambda: None

    def forget(self) -> None:
        """Has all pipes forget the iteration."""
        self._epoch = self._training = None
        self._link.forget()
