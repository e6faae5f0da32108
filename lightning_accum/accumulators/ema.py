"""The exponential moving average."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.accumulators._arithmetic import by_parts
from lightning_accum.accumulators._base import State
from lightning_accum.accumulators._elementwise import Summed
from lightning_accum.sparse.attributes import assign


class EMA(Summed):
    r"""The exponential moving average of the values, element by element, without a start-up bias.

    .. math::
        s_n = \beta s_{n-1} + (1 - \beta) x_n, \qquad
        w_n = \beta w_{n-1} + (1 - \beta), \qquad
        \mathrm{EMA}_n = \frac{s_n}{w_n}

    The average is computed in float64 if the device has it, and returned in the values' dtype.
    Before any value it is nan, with one warning. Over several processes it is the mean of their
    averages, weighed by :math:`w_n`.

    Args:
        decay: :math:`\beta`, in (0, 1): the average reaches back about :math:`1 / (1 - \beta)`
            values.
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if the decay is out of range.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import EMA
        >>> average = EMA(decay=0.5)
        >>> average(torch.tensor(1.0)), average(torch.tensor(4.0))
        (tensor(1.), tensor(3.))
    """

    scaled: Tensor
    weight: Tensor
    real = ("weight",)

    def __init__(self, decay: float = 0.9, **kwargs: Any) -> None:
        # The weight is first, since it differs between averages of different decay.
        super().__init__({"weight": torch.tensor(0.0), "scaled": torch.tensor(0.0)}, **kwargs)
        check_numbers(decay=decay)
        if not 0 < decay < 1:
            raise ValueError(
                f"Argument `decay` should be between 0 and 1. Found `decay = {decay}`: give 0.9 for"
                " an average over about 10 values, 0.99 for 100."
            )
        self.decay = decay

    def update(self, value: Tensor | float) -> None:
        """Adds a value.

        Args:
            value: a tensor of any shape, the same in every call, or a number.

        Raises:
            ValueError: if the shape differs from that of the values before.
        """
        tensor, like, _ = self._entering(value)
        self._check_shape(tensor, self.scaled)
        share = 1 - self.decay
        scaled = by_parts(
            lambda scaled, value: torch.add(scaled * self.decay, value, alpha=share),
            *(self.scaled, tensor),
        )
        # As wide as the values: a wider weight would not make the quotient more exact.
        weight = self.weight.to(scaled.real.dtype) * self.decay + share
        assign(self, scaled=scaled, weight=weight, like=like)

    def compute(self) -> Tensor:
        """Returns the average, of the values' shape."""
        average: Tensor = by_parts(lambda part: part / self.weight, self.scaled)
        return average.to(self.like.dtype)

    def _shaped(self) -> list[str]:
        return ["scaled"]

    def _combined(self, parts: list[State]) -> State:
        scaled, weight = parts[0]["scaled"], parts[0]["weight"]
        for part in parts[1:]:
            scaled = by_parts(torch.add, scaled, part["scaled"])
            weight = weight + part["weight"]
        return {"scaled": scaled, "weight": weight}
