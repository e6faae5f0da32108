"""What the code for speed needs to know of the products that it sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias

import torch
from torch import Tensor

from lightning_accum.functional.traces import TraceMode
from lightning_accum.sparse.events import Events

Side: TypeAlias = Literal["pre", "post"]


class Factor(Protocol):
    """One side of a product: recorded activity ``[T, B, ...]``, or a trace of it."""

    decay: float | None
    mode: TraceMode
    weights: Tensor | None

    @property
    def activity(self) -> Tensor:
        """What was recorded."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype in which this is computed."""

    @property
    def known_events(self) -> Events | None:
        """The spikes' indices, ``None`` if they were not searched for yet."""

    def values(self) -> Tensor:
        """Returns all values."""

    def values_in(self, out: Tensor) -> Tensor:
        """Returns a trace without its weights, in memory that may be overwritten later."""

    def initial(self) -> Tensor | None:
        """Returns a trace before the first step, ``None`` for zero."""

    def events(self) -> Events:
        """Returns the spikes' indices in ``[K, neurons]``."""

    def shares_of_events(self) -> Tensor:
        """Returns ``[events]`` what each spike adds to the nearest trace."""


class Product(Protocol):
    """``rate`` times the product of two factors, summed over time and samples."""

    @property
    def rate(self) -> float:
        """The factor; its sign says to which part the product belongs."""

    @property
    def operands(self) -> tuple[Factor, Factor]:
        """The postsynaptic and the presynaptic side."""


class Sink(Protocol):
    """Takes what was summed, by part."""

    def accumulate(self, pos: Tensor | None = None, neg: Tensor | None = None) -> None:
        """Takes sums in the parameter's shape."""

    def accumulate_outer(
        self,
        post: Sequence[Tensor],
        pre: Sequence[Tensor],
        scale: Sequence[float],
        *,
        negative: bool = False,
    ) -> None:
        """Takes products ``[K, out]`` and ``[K, in]`` that are one contribution together."""


class LinearMap(Protocol):
    """Makes a change of a parameter of a product of both sides."""

    def sum(self, post: Tensor, pre: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the sum over the first dimension, in the parameter's shape."""
