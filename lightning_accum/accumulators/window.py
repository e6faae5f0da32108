"""The mean of the last values."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_accum.accumulators._arithmetic import by_parts
from lightning_accum.accumulators._base import State
from lightning_accum.accumulators._keeping import Keeping
from lightning_accum.accumulators._values import STREAMED, check_shape, double, wide


class Window(Keeping):
    r"""The mean of the last values, element by element.

    .. math:: \bar x = \frac{1}{n} \sum_{i = N - n + 1}^{N} x_i

    or the mean of all values while there are fewer. It is computed in float64 if the device has it,
    and returned in the values' dtype. Before any value it is nan, with one warning. Over several
    processes it is the mean of the windows of all. After ``merge_state`` it holds both windows, the
    other one as the newer, until the next update shortens it to its length again.

    Args:
        length: number of values :math:`n`.
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if the length is not a positive integer.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Window
        >>> window = Window(2)
        >>> [window(torch.tensor(value)) for value in (1.0, 2.0, 6.0)]
        [tensor(1.), tensor(1.5000), tensor(4.)]
    """

    values: list[Tensor]

    def __init__(self, length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not isinstance(length, int) or isinstance(length, bool) or length < 1:
            raise ValueError(
                f"Argument `length` should be a positive integer. Found `length = {length!r}`."
            )
        self.length = length

    def update(self, value: Tensor | float) -> None:
        """Adds a value, and drops the oldest if the window is full.

        Args:
            value: a tensor of any shape, the same in every call, or a number.

        Raises:
            ValueError: if the shape differs from that of the values before.
        """
        tensor = wide(value, self.device)
        if self.values:
            check_shape("Window", tensor, self.values[-1])
        self.values.append(tensor.clone())
        del self.values[: -self.length]

    def compute(self) -> Tensor:
        """Returns the mean, of the values' shape."""
        if not self.values:
            return torch.tensor(torch.nan)
        values = torch.stack(self.values)
        summed = values.to(double(values.dtype, values.device))
        mean: Tensor = by_parts(lambda part: part.mean(0), summed)
        return mean.to(values.dtype)

    def _check_states(self, states: State, names: list[str]) -> None:
        super()._check_states(states, names)
        values = states["_extra_state"]["values"]
        fit = [v for v in values if isinstance(v, Tensor) and v.dtype in STREAMED]
        if len(fit) < len(values) or len({v.shape for v in fit}) > 1:
            raise ValueError(f"its `values` should be tensors of one shape. Found {values}.")

    def _is_empty(self) -> bool:
        return not self.values
