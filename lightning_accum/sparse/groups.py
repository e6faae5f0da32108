"""What is summed over one raster."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_sums import Rows
from lightning_accum.sparse.products import Factor
from lightning_accum.sparse.step import flat

Scaled: TypeAlias = "list[tuple[float, Rows]]"


class Group:
    """Factors of one raster and its weights, by part: each a rate and values, or a trace of them.

    A trace that is not computed yet is only in a group whose events the kernel visits.
    """

    def __init__(self, raster: Tensor, weights: Tensor | None, factor: Factor | None) -> None:
        self.raster = raster
        self.weights = weights
        self.factor = factor  # has the raster's events
        self.parts: dict[bool, Scaled] = {}

    def events(self) -> tuple[Events, Tensor | None]:
        """Returns the events of the raster, and their weights as a matrix, or one each."""
        assert self.factor is not None
        weights = self.weights
        if weights is not None and weights.ndim > 1:
            weights = flat(weights.expand(self.raster.shape))
        return self.factor.events(), weights


Visit: TypeAlias = "tuple[Group, Scaled]"
