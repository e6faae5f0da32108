"""The reducer that keeps an exponential trace."""

from __future__ import annotations

from typing import final, get_args

import torch
from torch import Tensor

from lightning_accum._checks import check_callables, check_finite, check_tensors
from lightning_accum.functional.interpolation import interp_exponential
from lightning_accum.functional.numbers import widened
from lightning_accum.functional.traces import TraceMode, decay_factor
from lightning_accum.observe.reducers.history import (
    Criterion,
    HistoryReducer,
    find_events,
    nonzero,
)

_MODES = get_args(TraceMode)


@final
class TraceReducer(HistoryReducer):
    r"""Keeps an exponential trace; an event counts in the step in which it happens.

    .. math::
        \text{cumulative:}\quad y_t = a\,y_{t-1} + [e_t]\,v_t \qquad
        \text{nearest:}\quad y_t = \begin{cases} v_t & e_t \\ a\,y_{t-1} & \text{else} \end{cases}

    with :math:`a = e^{-\Delta t / \tau}`, :math:`e_t` true where an event is, and its amplitude
    :math:`v_t`, either constant, :math:`v_t = A`, or proportional to the value observed,
    :math:`v_t = A\,s_t`. Between two observations the trace decays.

    Args:
        tc: time constant :math:`\tau`, in ms.
        amplitude: :math:`A`, of an event, or for each unit of the value.
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations :math:`\Delta t`, in ms.
        criterion: finds the events in observations ``[...]``, as booleans ``[...]``; only a
            function of a module can be pickled. ``None`` if a condition comes with every
            observation.
        mode: ``"cumulative"``, all events count, or ``"nearest"``, only the latest one.
        proportional: whether the amplitude is proportional to the value observed.

    Raises:
        ValueError: if a time is not in its range, the amplitude is not finite, or ``mode`` is
            another one.

    Example:
        >>> import math, torch
        >>> nearest, cumulative = (
        ...     TraceReducer(tc=1 / math.log(2), mode=mode)  # halves in 1 ms
        ...     for mode in ("nearest", "cumulative")
        ... )
        >>> for spike in (1.0, 0.0, 1.0, 0.0):
        ...     nearest(torch.tensor([spike]))
        ...     cumulative(torch.tensor([spike]))
        >>> nearest.peek(), cumulative.peek()
        (tensor([0.5000]), tensor([0.6250]))

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
        criterion: Criterion | None = nonzero,
        *,
        mode: TraceMode = "cumulative",
        proportional: bool = False,
    ) -> None:
        super().__init__(duration, dt)
        check_finite(amplitude=amplitude)
        if mode not in _MODES:
            raise ValueError(f"Argument `mode` should be one of {_MODES}. Found `mode = {mode!r}`.")
        if criterion is not None:
            check_callables(criterion=criterion)
        self.mode: TraceMode = mode
        self.proportional = proportional
        self.tc = tc
        self.decay = decay_factor(tc, dt)
        self.amplitude = amplitude
        self.criterion = criterion

    def forward(self, observation: Tensor, condition: Tensor | None = None) -> None:
        """Takes in one observation.

        Args:
            observation: ``[...]``, in the same shape until :meth:`clear` is called.
            condition: booleans that broadcast to ``[...]``, true where an event is; found by the
                criterion when ``None``.

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
        self._push(self._next(observation, event, self._last(observation)))

    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        if self.criterion is None:
            raise ValueError(
                "Argument `condition` should be true at the events. Found `condition = None`: pass"
                " it with the observation, or pass a `criterion` to the reducer."
            )
        return self._next(observation, find_events(self.criterion, observation), last)

    def _next(self, observation: Tensor, event: Tensor, last: Tensor | None) -> Tensor:
        values = widened(observation)
        if self.proportional:
            values = values * self.amplitude
        else:
            values = torch.full_like(values, self.amplitude)
        values = values.masked_fill(~event, 0)
        if last is None:
            return values
        if self.mode == "cumulative":
            return values.add(last, alpha=self.decay)
        return torch.where(event, values, last * self.decay)

    def _between(self, earlier: Tensor, later: Tensor, elapsed: Tensor) -> Tensor:
        return interp_exponential(earlier, later, elapsed, self.dt, self.tc)
