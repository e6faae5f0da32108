"""Constraints that hold after each update: hard limits, and a fixed norm."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_accum.functional.constraints import clamp_, normalize_


@dataclass(frozen=True)
class Clamp:
    r"""Hard bounds: :math:`w \leftarrow \min(\max(w, w_{\min}), w_{\max})` after each update.

    Args:
        min: the lowest value, or ``None`` for no limit.
        max: the highest value, or ``None`` for no limit.

    Example:
        >>> import torch
        >>> w = torch.tensor([-1.0, 2.0])
        >>> Clamp(0.0, 1.0)(w)
        >>> w
        tensor([0., 1.])
    """

    min: float | None = None
    max: float | None = None

    def __post_init__(self) -> None:
        clamp_(torch.empty(0), self.min, self.max)  # checks the limits

    @property
    def weight_limits(self) -> tuple[float | None, float | None]:
        """The lowest and the highest value."""
        return self.min, self.max

    def __call__(self, param: Tensor) -> None:
        """Clamps ``param`` in place."""
        clamp_(param, self.min, self.max)


@dataclass(frozen=True)
class Normalize:
    r"""Scales each output's incoming weights to one norm, :math:`\lVert w_o \rVert_p = n`.

    Args:
        norm: the norm :math:`n` of each output's weights.
        order: :math:`p`, usually 1 or 2.

    Example:
        >>> import torch
        >>> w = torch.tensor([[1.0, 3.0]])
        >>> Normalize(1.0, order=1)(w)
        >>> w
        tensor([[0.2500, 0.7500]])
    """

    norm: float = 1.0
    order: float = 1.0

    def __post_init__(self) -> None:
        normalize_(torch.ones(1, 1), self.norm, self.order)  # checks the numbers

    def __call__(self, param: Tensor) -> None:
        """Normalizes each slice of ``param`` along its first dimension, in place."""
        normalize_(param, self.norm, self.order)
