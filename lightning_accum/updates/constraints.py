"""What runs after an update was applied."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_accum.functional.constraints import clamp_, normalize_


@dataclass(frozen=True)
class Clamp:
    r"""Hard bounds: :math:`w \leftarrow \min(\max(w, w_{\min}), w_{\max})` after each update.

    Args:
        min: lowest value, or ``None``.
        max: highest value, or ``None``.

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
        clamp_(torch.empty(0), self.min, self.max)  # for its check of the limits

    def __call__(self, param: Tensor) -> None:
        """Clamps ``param`` in place."""
        clamp_(param, self.min, self.max)


@dataclass(frozen=True)
class Normalize:
    r"""Scales each output's incoming weights to one norm, :math:`\lVert w_o \rVert_p = n`.

    Args:
        norm: the norm that every output gets.
        order: :math:`p`, 1 or 2 as a rule.

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
        normalize_(torch.ones(1, 1), self.norm, self.order)  # for its check of the numbers

    def __call__(self, param: Tensor) -> None:
        """Normalises ``param`` in place, each slice along its first dimension apart."""
        normalize_(param, self.norm, self.order)
