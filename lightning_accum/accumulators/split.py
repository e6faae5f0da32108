"""A fork of a pipe."""

from __future__ import annotations

from collections import Counter
from typing import Any

from torch import nn
from torchmetrics.utilities import rank_zero_warn

from lightning_accum.accumulators._links import Ends, Link
from lightning_accum.accumulators._stage import Stage, join


class Split(Stage, nn.Module):
    """Gives each item to several pipes, and passes it on.

    Args:
        *pipes: stages or pipes.

    Example:
        >>> from lightning_accum.accumulators import List, Max, Mean, Split
        >>> both = Split(Mean() ** print, Max() ** print) ** List() ** print
        >>> _ = both.run([1, 3])
        tensor(2., dtype=torch.float64)
        tensor(3)
        [1, 3]
    """

    def __init__(self, *pipes: Any) -> None:
        super().__init__()
        self.branches = nn.ModuleList(join(pipe).as_branch() for pipe in pipes)

    def forward(self, item: Any) -> Any:
        """Sends an accumulated result through all pipes.

        Args:
            item: the result.

        Returns:
            The result.
        """
        for pipe in self.branches:
            pipe.send(item)  # type: ignore[operator]
        return item

    def link(self) -> SplitLink:
        """Returns a part that passes everything to the pipes."""
        return SplitLink(self, Split.forward)


class SplitLink(Link):
    """The part of a split: its pipes take part in the iterations of the pipe that holds it."""

    def send(self, item: Any) -> Any:
        """Sends an accumulated result through all pipes, and returns it."""
        return self.stage(item)

    def step(self, item: Any) -> Any:
        """Sends an item through all pipes, as far as their first accumulators, and returns it."""
        for pipe in self.stage.branches:
            pipe(item)
        return item

    def ends(self) -> Ends:
        """Yields the calls that send the pipes' results on."""
        for pipe in self.stage.branches:
            yield from pipe.ends()

    def forget(self) -> None:
        """Has the pipes forget the iteration."""
        for pipe in self.stage.branches:
            pipe.forget()

    def begin(self) -> None:
        """Warns of the results of the pipes that would be lost, or mixed with one another."""
        self._check_shared()
        for pipe in self.stage.branches:
            pipe.begin()

    def _check_shared(self) -> None:
        """Warns of accumulators that stand in several pipes."""
        stages = (
            each
            for pipe in self.stage.branches
            for each in pipe.modules()
            if isinstance(each, Stage) and each.link().accumulates
        )
        shared = [each for each, times in Counter(stages).items() if times > 1]
        for each in shared:
            rank_zero_warn(
                f"An accumulator should stand in one pipe. Found the same `{type(each).__name__}`"
                " in two pipes of a source or a split, so that it adds up the values of both, and"
                " only the first gets the result: make one for each."
            )

    def bind(self, module: Any) -> None:
        """Has the pipes log through a LightningModule."""
        for pipe in self.stage.branches:
            pipe.bind(module)

    def settle(self) -> None:
        """Makes the accumulators of the pipes local."""
        for pipe in self.stage.branches:
            pipe.settle()
