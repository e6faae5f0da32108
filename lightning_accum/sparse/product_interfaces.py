"""The interfaces of products, and of the places where their sums go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor

from lightning_accum.functional.traces import TraceMode
from lightning_accum.sparse.eligibility import Folding
from lightning_accum.sparse.events import Events

Side: TypeAlias = Literal["pre", "post"]


class Factor(Protocol):
    """One side of a product: recorded activity ``[T, B, ...]``, or a trace of it."""

    source: Any
    shape: torch.Size
    device: torch.device
    dtype: torch.dtype
    folding: Folding | None
    is_raster: bool
    decay: float | None
    mode: TraceMode
    weights: Tensor | None

    @property
    def activity(self) -> Tensor:
        """The recorded activity."""

    def values(self) -> Tensor:
        """Returns all values."""

    def values_in(self, out: Tensor) -> Tensor:
        """Returns a trace without its weights, in memory that the caller may overwrite."""

    def initial(self) -> Tensor | None:
        """Returns a trace before the first step, ``None`` for zero."""

    def edges(self) -> tuple[Tensor | None, Tensor] | None:
        """Returns a trace before the first step, and memory that is to receive it of the last."""
        # It is `None` for a trace that is known.

    def events(self) -> Events:
        """Returns the spikes' indices in ``[K, neurons]``."""

    def shares_of_events(self) -> Tensor:
        """Returns ``[events]``, what each spike adds to the nearest trace."""


def weighs_rows(factor: Factor) -> bool:
    """Returns whether all neurons of a sample have the same weight in a step, like a reward."""
    return factor.weights is not None and factor.weights.shape[-1:] in ((), (1,))


class Product(Protocol):
    """``rate`` times the product of two factors, summed over time and samples."""

    @property
    def rate(self) -> float:
        """The factor; its sign selects the part that the product belongs to."""

    @property
    def operands(self) -> tuple[Factor, Factor]:
        """The postsynaptic and the presynaptic side."""


class Write(Protocol):
    """Writes a sum to a tensor, or adds it to what is there."""

    def __call__(self, total: Tensor, *, onto: bool) -> object:
        """Writes it to ``total``."""


class Sink(Protocol):
    """Takes the sums of each part."""

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
        """Takes pairs of sides ``[K, out]`` and ``[K, in]`` whose products are one contribution."""

    def accumulate_written(
        self,
        write: Write,
        shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device,
        *,
        negative: bool = False,
    ) -> None:
        """Takes a sum that is written where it is kept."""


class LinearMap(Protocol):
    """Sums products of both sides into the shape of a parameter."""

    def sum(self, post: Tensor, pre: Tensor, dtype: torch.dtype) -> Tensor:
        """Returns the sum over the first dimension, in the parameter's shape."""
