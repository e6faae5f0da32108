"""What the code for speed needs to know of the products that it sums."""

from __future__ import annotations

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
    def activity(self) -> Tensor: ...
    @property
    def dtype(self) -> torch.dtype: ...
    @property
    def known_events(self) -> Events | None: ...
    def values(self) -> Tensor: ...
    def values_in(self, out: Tensor) -> Tensor: ...
    def initial(self) -> Tensor | None: ...
    def events(self) -> Events: ...
    def shares_of_events(self) -> Tensor: ...


class Product(Protocol):
    """``rate`` times the product of two factors, summed over time and samples."""

    @property
    def rate(self) -> float: ...
    @property
    def operands(self) -> tuple[Factor, Factor]: ...
