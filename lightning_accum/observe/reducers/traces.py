"""The reducers that keep exponential traces: nearest or cumulative, of which values and where."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import torch
from torch import Tensor

from lightning_accum._checks import check_callables, check_finite, check_tensors
from lightning_accum.functional.interpolation import interp_exponential
from lightning_accum.functional.traces import TraceMode, decay_factor
from lightning_accum.observe.reducers.history import (
    Criterion,
    FoldReducer,
    at_least_float32,
    events,
    nonzero,
)


class TraceReducer(FoldReducer, ABC):
    r"""An exponential trace; an event counts in the step in which it happens.

    .. math::
        \text{cumulative:}\quad y_t = a\,y_{t-1} + [e_t]\,v_t \qquad
        \text{nearest:}\quad y_t = \begin{cases} v_t & e_t \\ a\,y_{t-1} & \text{else} \end{cases}

    with :math:`a = e^{-\Delta t / \tau}`, :math:`e_t` where an event is and :math:`v_t` its
    amplitude. Between two observations the trace decays.

    Args:
        tc: time constant :math:`\tau`, in ms.
        duration: how far back the history reaches, in ms.
        dt: time between two observations :math:`\Delta t`, in ms.
    """

    mode: ClassVar[TraceMode]

    def __init__(self, tc: float, duration: float, dt: float) -> None:
        super().__init__(duration, dt)
        self.tc = tc
        self.decay = decay_factor(tc, dt)

    def _traced(self, amplitude: Tensor, event: Tensor, last: Tensor | None) -> Tensor:
        values = amplitude.masked_fill(~event, 0)
        if last is None:
            return values
        if self.mode == "cumulative":
            return values.add(last, alpha=self.decay)
        return torch.where(event, values, last * self.decay)

    def _between(self, earlier: Tensor, later: Tensor, elapsed: Tensor) -> Tensor:
        return interp_exponential(earlier, later, elapsed, self.dt, self.tc)


class SpikeTraceReducer(TraceReducer, ABC):
    """A trace in which every event has the same amplitude."""

    def __init__(
        self,
        tc: float,
        amplitude: float = 1.0,
        duration: float = 0.0,
        dt: float = 1.0,
        criterion: Criterion = nonzero,
    ) -> None:
        super().__init__(tc, duration, dt)
        check_finite(amplitude=amplitude)
        check_callables(criterion=criterion)
        self.amplitude = amplitude
        self.criterion = criterion

    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        amplitude = torch.full_like(at_least_float32(observation), self.amplitude)
        return self._traced(amplitude, events(self.criterion, observation), last)


class ScaledTraceReducer(TraceReducer, ABC):
    """A trace in which the amplitude is proportional to the value observed."""

    def __init__(
        self,
        tc: float,
        scale: float = 1.0,
        duration: float = 0.0,
        dt: float = 1.0,
        criterion: Criterion = nonzero,
    ) -> None:
        super().__init__(tc, duration, dt)
        check_finite(scale=scale)
        check_callables(criterion=criterion)
        self.scale = scale
        self.criterion = criterion

    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        amplitude = self.scale * at_least_float32(observation)
        return self._traced(amplitude, events(self.criterion, observation), last)


class ConditionalTraceReducer(TraceReducer, ABC):
    """A trace of the values for which a condition is given beside the observation."""

    def __init__(
        self,
        tc: float,
        scale: float = 1.0,
        duration: float = 0.0,
        dt: float = 1.0,
        criterion: Criterion | None = None,
    ) -> None:
        super().__init__(tc, duration, dt)
        check_finite(scale=scale)
        if criterion is not None:
            check_callables(criterion=criterion)
        self.scale = scale
        self.criterion = criterion

    def forward(self, observation: Tensor, condition: Tensor | None = None) -> None:
        """Takes one observation in.

        Args:
            observation: ``[...]``, of one shape between two calls of :meth:`clear`.
            condition: booleans that broadcast to ``[...]``, where an event is; when ``None``, the
                criterion says.

        Raises:
            ValueError: if there is neither condition nor criterion, or the shapes do not fit.
        """
        if condition is None:
            super().forward(observation)
            return
        check_tensors(observation=observation, condition=condition)
        observation = observation.detach()
        try:
            event = condition.detach().to(torch.bool).expand(observation.shape)
        except RuntimeError:
            raise ValueError(
                f"Argument `condition` should broadcast to the observation,"
                f" {tuple(observation.shape)}. Found shape {tuple(condition.shape)}."
            ) from None
        last = self._last(observation)
        self._push(self._traced(self.scale * at_least_float32(observation), event, last))

    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        if self.criterion is None:
            raise ValueError(
                "Argument `condition` should say where an event is. Found `condition = None`: give"
                " it with the observation, or give the reducer a `criterion`."
            )
        amplitude = self.scale * at_least_float32(observation)
        return self._traced(amplitude, events(self.criterion, observation), last)


class NearestTraceReducer(SpikeTraceReducer):
    r"""Keeps the trace of the latest event alone.

    .. math::
        y_t = \begin{cases} A & \text{criterion}(s_t) \\ e^{-\Delta t / \tau}\,y_{t-1} & \text{else}
        \end{cases}

    Args:
        tc: time constant :math:`\tau`, in ms.
        amplitude: :math:`A`, what an event sets the trace to.
        duration: how far back the history reaches, in ms; 0 for the latest state alone.
        dt: time between two observations :math:`\Delta t`, in ms.
        criterion: says of observations ``[...]`` where an event is, as booleans ``[...]``; where
            they are not zero by default. A function of a module, so that it can be pickled.

    Raises:
        ValueError: if a time is not in its range.

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

    mode = "nearest"


class CumulativeTraceReducer(SpikeTraceReducer):
    r"""Keeps the trace of all events.

    .. math::
        y_t = e^{-\Delta t / \tau}\,y_{t-1} + A\,[\text{criterion}(s_t)]

    Args:
        tc: time constant :math:`\tau`, in ms.
        amplitude: :math:`A`, what an event adds to the trace.
        duration: how far back the history reaches, in ms; 0 for the latest state alone.
        dt: time between two observations :math:`\Delta t`, in ms.
        criterion: says of observations ``[...]`` where an event is, as booleans ``[...]``; where
            they are not zero by default. A function of a module, so that it can be pickled.

    Raises:
        ValueError: if a time is not in its range.

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

    mode = "cumulative"


class ScaledNearestTraceReducer(ScaledTraceReducer):
    r"""Keeps the trace of the latest event alone, as large as the value observed.

    .. math::
        y_t = \begin{cases} \lambda\,s_t & \text{criterion}(s_t) \\
        e^{-\Delta t / \tau}\,y_{t-1} & \text{else} \end{cases}

    Args:
        tc: time constant :math:`\tau`, in ms.
        scale: :math:`\lambda`, the amplitude for each unit of the value.
        duration: how far back the history reaches, in ms; 0 for the latest state alone.
        dt: time between two observations :math:`\Delta t`, in ms.
        criterion: says of observations ``[...]`` where an event is, as booleans ``[...]``; where
            they are not zero by default. A function of a module, so that it can be pickled.

    Raises:
        ValueError: if a time is not in its range.

    Example:
        >>> import math, torch
        >>> trace = ScaledNearestTraceReducer(tc=1 / math.log(2), scale=2.0)  # halves in 1 ms
        >>> for value in (8.0, 3.0, 0.0):
        ...     trace(torch.tensor([value]))
        >>> trace.peek()
        tensor([3.])
    """

    mode = "nearest"


class ScaledCumulativeTraceReducer(ScaledTraceReducer):
    r"""Keeps the trace of all events, each as large as the value observed.

    .. math::
        y_t = e^{-\Delta t / \tau}\,y_{t-1} + \lambda\,s_t\,[\text{criterion}(s_t)]

    Args:
        tc: time constant :math:`\tau`, in ms.
        scale: :math:`\lambda`, the amplitude for each unit of the value.
        duration: how far back the history reaches, in ms; 0 for the latest state alone.
        dt: time between two observations :math:`\Delta t`, in ms.
        criterion: says of observations ``[...]`` where an event is, as booleans ``[...]``; where
            they are not zero by default. A function of a module, so that it can be pickled.

    Raises:
        ValueError: if a time is not in its range.

    Example:
        >>> import math, torch
        >>> trace = ScaledCumulativeTraceReducer(tc=1 / math.log(2), scale=2.0)  # halves in 1 ms
        >>> for value in (8.0, 3.0, 0.0):
        ...     trace(torch.tensor([value]))
        >>> trace.peek()
        tensor([7.])
    """

    mode = "cumulative"


class ConditionalNearestTraceReducer(ConditionalTraceReducer):
    r"""Keeps the trace of the latest value for which a condition held.

    .. math::
        y_t = \begin{cases} \lambda\,s_t & c_t \\ e^{-\Delta t / \tau}\,y_{t-1} & \text{else}
        \end{cases}

    Args:
        tc: time constant :math:`\tau`, in ms.
        scale: :math:`\lambda`, the amplitude for each unit of the value.
        duration: how far back the history reaches, in ms; 0 for the latest state alone.
        dt: time between two observations :math:`\Delta t`, in ms.
        criterion: gives the condition :math:`c_t` where it is not given with the observation, as
            from a monitor; booleans ``[...]`` of observations ``[...]``. A function of a module,
            so that it can be pickled.

    Raises:
        ValueError: if a time is not in its range.

    Example:
        >>> import math, torch
        >>> trace = ConditionalNearestTraceReducer(tc=1 / math.log(2))  # halves in 1 ms
        >>> for value, condition in ((8.0, True), (3.0, True), (5.0, False)):
        ...     trace(torch.tensor([value]), torch.tensor([condition]))
        >>> trace.peek()
        tensor([1.5000])
    """

    mode = "nearest"


class ConditionalCumulativeTraceReducer(ConditionalTraceReducer):
    r"""Keeps the trace of all values for which a condition held.

    .. math::
        y_t = e^{-\Delta t / \tau}\,y_{t-1} + \lambda\,s_t\,[c_t]

    Args:
        tc: time constant :math:`\tau`, in ms.
        scale: :math:`\lambda`, the amplitude for each unit of the value.
        duration: how far back the history reaches, in ms; 0 for the latest state alone.
        dt: time between two observations :math:`\Delta t`, in ms.
        criterion: gives the condition :math:`c_t` where it is not given with the observation, as
            from a monitor; booleans ``[...]`` of observations ``[...]``. A function of a module,
            so that it can be pickled.

    Raises:
        ValueError: if a time is not in its range.

    Example:
        >>> import math, torch
        >>> trace = ConditionalCumulativeTraceReducer(tc=1 / math.log(2))  # halves in 1 ms
        >>> for value, condition in ((8.0, True), (3.0, True), (5.0, False)):
        ...     trace(torch.tensor([value]), torch.tensor([condition]))
        >>> trace.peek()
        tensor([3.5000])
    """

    mode = "cumulative"
