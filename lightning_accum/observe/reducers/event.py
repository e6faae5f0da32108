"""The reducer that keeps the time since the last event."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_accum._checks import check_callables
from lightning_accum.functional.numbers import widened
from lightning_accum.observe.reducers.criterion import Criterion, find_events, nonzero
from lightning_accum.observe.reducers.history import FoldReducer


class EventReducer(FoldReducer):
    r"""Keeps the time since the last event, in ms; infinite before the first one.

    .. math::
        y_t = \begin{cases} 0 & \text{criterion}(s_t) \\ y_{t-1} + \Delta t & \text{else}
        \end{cases}

    Between two observations the time since the event grows continuously.

    Args:
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations :math:`\Delta t`, in ms.
        criterion: finds the events in observations ``[...]``, as booleans ``[...]``; by default
            those that are not zero. Only a function of a module can be pickled.

    Example:
        >>> import torch
        >>> since = EventReducer(dt=0.5)
        >>> for spikes in ([1, 0], [0, 0], [0, 0]):
        ...     since(torch.tensor(spikes))
        >>> since.peek()
        tensor([1., inf])
    """

    def __init__(
        self, duration: float = 0.0, dt: float = 1.0, criterion: Criterion = nonzero
    ) -> None:
        super().__init__(duration, dt)
        check_callables(criterion=criterion)
        self.criterion = criterion

    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        if last is None:
            last = torch.full_like(widened(observation), math.inf)
        return (last + self.dt).masked_fill(find_events(self.criterion, observation), 0)

    def _between(self, earlier: Tensor, later: Tensor, elapsed: Tensor) -> Tensor:
        return earlier + elapsed
