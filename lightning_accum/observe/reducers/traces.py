"""The six named forms of :class:`TraceReducer`."""

from __future__ import annotations

from typing import final

from lightning_accum._checks import check_finite
from lightning_accum.observe.reducers.criterion import Criterion, nonzero
from lightning_accum.observe.reducers.trace import TraceReducer


@final
class NearestTraceReducer(TraceReducer):
    """Keeps the trace of the latest event only.

    See :class:`TraceReducer` for the equation, here with ``mode="nearest"`` and
    ``proportional=False``.

    Args:
        tc: time constant, in ms.
        amplitude: amplitude of an event.
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations, in ms.
        criterion: finds the events in observations, those that are not zero by default.

    Example:
        >>> import math, torch
        >>> trace = NearestTraceReducer(tc=1 / math.log(2))  # halves in 1 ms
        >>> for spike in (1.0, 0.0, 1.0, 0.0):
        ...     trace(torch.tensor([spike]))
        >>> trace.peek()
        tensor([0.5000])

    Source:
        Morrison, Diesmann & Gerstner 2008, "Phenomenological models of synaptic plasticity based
        on spike timing", doi:10.1007/s00422-008-0233-1.
    """

    def __init__(
        self,
        tc: float,
        amplitude: float = 1.0,
        duration: float = 0.0,
        dt: float = 1.0,
        criterion: Criterion = nonzero,
    ) -> None:
        check_finite(amplitude=amplitude)
        super().__init__("nearest", False, tc, amplitude, duration, dt, criterion)


@final
class CumulativeTraceReducer(TraceReducer):
    """Keeps the trace of all events.

    See :class:`TraceReducer` for the equation, here with ``mode="cumulative"`` and
    ``proportional=False``.

    Args:
        tc: time constant, in ms.
        amplitude: amplitude of an event.
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations, in ms.
        criterion: finds the events in observations, those that are not zero by default.

    Example:
        >>> import math, torch
        >>> trace = CumulativeTraceReducer(tc=1 / math.log(2))  # halves in 1 ms
        >>> for spike in (1.0, 0.0, 1.0, 0.0):
        ...     trace(torch.tensor([spike]))
        >>> trace.peek()
        tensor([0.6250])

    Source:
        Morrison, Diesmann & Gerstner 2008, "Phenomenological models of synaptic plasticity based
        on spike timing", doi:10.1007/s00422-008-0233-1.
    """

    def __init__(
        self,
        tc: float,
        amplitude: float = 1.0,
        duration: float = 0.0,
        dt: float = 1.0,
        criterion: Criterion = nonzero,
    ) -> None:
        check_finite(amplitude=amplitude)
        super().__init__("cumulative", False, tc, amplitude, duration, dt, criterion)


@final
class ScaledNearestTraceReducer(TraceReducer):
    """Keeps the trace of the latest event only, proportional to the value observed.

    See :class:`TraceReducer` for the equation, here with ``mode="nearest"`` and
    ``proportional=True``.

    Args:
        tc: time constant, in ms.
        scale: amplitude of an event for each unit of its value.
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations, in ms.
        criterion: finds the events in observations, those that are not zero by default.

    Example:
        >>> import math, torch
        >>> trace = ScaledNearestTraceReducer(tc=1 / math.log(2), scale=2.0)  # halves in 1 ms
        >>> for value in (8.0, 3.0, 0.0):
        ...     trace(torch.tensor([value]))
        >>> trace.peek()
        tensor([3.])
    """

    def __init__(
        self,
        tc: float,
        scale: float = 1.0,
        duration: float = 0.0,
        dt: float = 1.0,
        criterion: Criterion = nonzero,
    ) -> None:
        check_finite(scale=scale)
        super().__init__("nearest", True, tc, scale, duration, dt, criterion)


@final
class ScaledCumulativeTraceReducer(TraceReducer):
    """Keeps the trace of all events, each proportional to the value observed.

    See :class:`TraceReducer` for the equation, here with ``mode="cumulative"`` and
    ``proportional=True``.

    Args:
        tc: time constant, in ms.
        scale: amplitude of an event for each unit of its value.
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations, in ms.
        criterion: finds the events in observations, those that are not zero by default.

    Example:
        >>> import math, torch
        >>> trace = ScaledCumulativeTraceReducer(tc=1 / math.log(2), scale=2.0)  # halves in 1 ms
        >>> for value in (8.0, 3.0, 0.0):
        ...     trace(torch.tensor([value]))
        >>> trace.peek()
        tensor([7.])
    """

    def __init__(
        self,
        tc: float,
        scale: float = 1.0,
        duration: float = 0.0,
        dt: float = 1.0,
        criterion: Criterion = nonzero,
    ) -> None:
        check_finite(scale=scale)
        super().__init__("cumulative", True, tc, scale, duration, dt, criterion)


@final
class ConditionalNearestTraceReducer(TraceReducer):
    """Keeps the trace of the latest value for which a condition held.

    See :class:`TraceReducer` for the equation, here with ``mode="nearest"`` and
    ``proportional=True``.

    Args:
        tc: time constant, in ms.
        scale: amplitude of an event for each unit of its value.
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations, in ms.
        criterion: finds the events if no condition comes with the observations.

    Example:
        >>> import math, torch
        >>> trace = ConditionalNearestTraceReducer(tc=1 / math.log(2))  # halves in 1 ms
        >>> for value, condition in ((8.0, True), (3.0, True), (5.0, False)):
        ...     trace(torch.tensor([value]), torch.tensor([condition]))
        >>> trace.peek()
        tensor([1.5000])
    """

    def __init__(
        self,
        tc: float,
        scale: float = 1.0,
        duration: float = 0.0,
        dt: float = 1.0,
        criterion: Criterion | None = None,
    ) -> None:
        check_finite(scale=scale)
        super().__init__("nearest", True, tc, scale, duration, dt, criterion)


@final
class ConditionalCumulativeTraceReducer(TraceReducer):
    """Keeps the trace of all values for which a condition held.

    See :class:`TraceReducer` for the equation, here with ``mode="cumulative"`` and
    ``proportional=True``.

    Args:
        tc: time constant, in ms.
        scale: amplitude of an event for each unit of its value.
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations, in ms.
        criterion: finds the events if no condition comes with the observations.

    Example:
        >>> import math, torch
        >>> trace = ConditionalCumulativeTraceReducer(tc=1 / math.log(2))  # halves in 1 ms
        >>> for value, condition in ((8.0, True), (3.0, True), (5.0, False)):
        ...     trace(torch.tensor([value]), torch.tensor([condition]))
        >>> trace.peek()
        tensor([3.5000])
    """

    def __init__(
        self,
        tc: float,
        scale: float = 1.0,
        duration: float = 0.0,
        dt: float = 1.0,
        criterion: Criterion | None = None,
    ) -> None:
        check_finite(scale=scale)
        super().__init__("cumulative", True, tc, scale, duration, dt, criterion)
