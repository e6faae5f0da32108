"""The reducers that average over time."""

from __future__ import annotations

from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.functional.numbers import widened
from lightning_accum.observe.reducers.history import FoldReducer


class EMAReducer(FoldReducer):
    r"""Keeps the exponential moving average, which begins at the first observation.

    .. math::
        y_0 = s_0 \qquad y_t = (1 - \alpha)\,y_{t-1} + \alpha\,s_t

    Args:
        alpha: weight :math:`\alpha` of a new observation, above 0 and at most 1.
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations, in ms.

    Raises:
        ValueError: if ``alpha`` is not in its range.

    Example:
        >>> import torch
        >>> mean = EMAReducer(0.25)
        >>> for value in (4.0, 8.0):
        ...     mean(torch.tensor([value]))
        >>> mean.peek()
        tensor([5.])
    """

    def __init__(self, alpha: float, duration: float = 0.0, dt: float = 1.0) -> None:
        super().__init__(duration, dt)
        check_numbers(alpha=alpha)
        if not 0 < alpha <= 1:
            raise ValueError(
                f"Argument `alpha` should be above 0 and at most 1. Found `{alpha = }`."
            )
        self.alpha = alpha

    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        now = widened(observation)
        return now if last is None else last + self.alpha * (now - last)


class CumulativeAverageReducer(FoldReducer):
    r"""Keeps the mean of all observations since the last ``clear()``.

    .. math::
        y_t = \frac{1}{t + 1} \sum_{u = 0}^{t} s_u = y_{t-1} + \frac{s_t - y_{t-1}}{t + 1}

    Args:
        duration: how far back the history of the mean reaches, in ms; 0 for the latest only. The
            mean is of all observations, however short the history is.
        dt: time between two observations, in ms.

    Example:
        >>> import torch
        >>> mean = CumulativeAverageReducer()
        >>> for value in (1.0, 2.0, 6.0):
        ...     mean(torch.tensor([value]))
        >>> mean.peek()
        tensor([3.])
    """

    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        now = widened(observation)
        return now if last is None else last + (now - last) / (self.steps + 1)
