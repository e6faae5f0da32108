"""A fork of a pipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn

from lightning_accum.accumulators._stage import Stage, chain


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
        self.branches = nn.ModuleList(chain(pipe)._branch() for pipe in pipes)

    def forward(self, item: Any) -> Any:
        """Sends an accumulated result through all pipes.

        Args:
            item: the result.

        Returns:
            The result.
        """
        for pipe in self.branches:
            pipe._through(item)  # type: ignore[operator]
        return item

    def _step(self, item: Any) -> Any:
        """Sends a step's item through all pipes, as far as their first accumulators."""
        for pipe in self.branches:
            pipe(item)
        return item

    def _ends(self) -> Iterator[Any]:
        for pipe in self.branches:
            yield from pipe._ends()  # type: ignore[operator]

    def _forget(self) -> None:
        for pipe in self.branches:
            pipe._forget()  # type: ignore[operator]
