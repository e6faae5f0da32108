"""The reducers with a history, which is a ring of the latest states."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeAlias, final, get_args

import torch
from torch import Tensor

from lightning_accum._checks import check_callables, check_finite, check_numbers, check_tensors
from lightning_accum._state import (
    COUNT,
    NUMBERS,
    TENSOR,
    Kind,
    check_state,
    check_that,
    optional,
)
from lightning_accum.functional.interpolation import interp_exponential
from lightning_accum.functional.numbers import widened
from lightning_accum.functional.traces import TraceMode, decay_factor
from lightning_accum.observe.reducers.base import Reducer, allocate

_MODES = get_args(TraceMode)

Criterion: TypeAlias = Callable[[Tensor], Tensor]
"""Finds the events in an observation, as booleans of its shape."""


class HistoryReducer(Reducer, ABC):
    """Computes a state from each observation, and keeps the latest states in memory of fixed size.

    Args:
        duration: how far back the history reaches, in ms; 0 for the latest state only.
        dt: time between two observations, in ms.

    Raises:
        ValueError: if ``duration`` is negative or infinite, or ``dt`` is not positive.
    """

    def __init__(self, duration: float = 0.0, dt: float = 1.0) -> None:
        super().__init__(dt)
        check_numbers(duration=duration)
        if not 0 <= duration < math.inf:
            raise ValueError(
                "Argument `duration` should be a finite, non-negative time in ms."
                f" Found `{duration = }`."
            )
        self.duration = duration
        # A duration that is a multiple of `dt` except for rounding includes its last step.
        self.size = math.floor(duration / dt + 1e-6) + 1
        self.steps = 0  # observed since the last clear; the latest lies at (steps - 1) % size
        self.length = 0  # how many of them are kept
        self._state = {"ring": None}

    _kind: ClassVar[Kind] = NUMBERS  # of its states, which are of float32 or wider

    @abstractmethod
    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        """Returns the state after an observation; ``last`` is ``None`` at the first one."""

    def forward(self, observation: Tensor) -> None:
        """Takes in one observation.

        Args:
            observation: ``[...]``, in the same shape until :meth:`clear` is called.

        Raises:
            TypeError: if it is not a tensor.
            ValueError: if the shape changes.
        """
        check_tensors(observation=observation)
        observation = observation.detach()
        self._push(self._fold(observation, self._last(observation)))

    def peek(self) -> Tensor | None:
        """Returns a copy of the latest state ``[...]``, ``None`` before the first observation."""
        return None if self.steps == 0 else self._ring()[(self.steps - 1) % self.size].clone()

    def dump(self) -> Tensor | None:
        """Returns a copy of the history ``[T, ...]``, oldest first, ``None`` if there is none."""
        if self.steps == 0:
            return None
        ordered = self._ring().roll(-(self.steps % self.size), 0)
        return ordered if self.length == self.size else ordered[-self.length :].clone()

    def clear(self, **kwargs: Any) -> None:
        """Drops the history; its memory stays."""
        self.steps = self.length = 0

    # ------------------------------------------------------------------ the ring
    def _ring(self) -> Tensor:
        ring = self._state["ring"]
        assert ring is not None
        return ring

    def _moved(self, fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
        moved = fn(tensor)  # half precision loses small terms of long sums
        wide = self._kind is not NUMBERS or moved.dtype.itemsize >= 4
        return moved if wide else tensor.to(moved.device)

    def _kept(self) -> tuple[Tensor, int, int] | None:
        if self.steps == 0:
            return None
        return self._ring(), (self.steps - 1) % self.size, self.length

    def _last(self, observation: Tensor) -> Tensor | None:
        """Returns the latest state on the device of ``observation``, whose shape it checks."""
        if self.steps == 0:
            return None
        last = self._ring()[(self.steps - 1) % self.size]
        if observation.shape != last.shape:
            raise ValueError(
                f"Observations should keep their shape. Found {tuple(observation.shape)} after"
                f" {self.steps} of {tuple(last.shape)}: clear the reducer between batches."
            )
        return last.to(observation.device)

    def _push(self, state: Tensor) -> None:
        """Writes a state over the oldest one."""
        ring = self._state["ring"]
        if self.steps == 0:
            wanted = (self.size, *state.shape), state.dtype, state.device
            if ring is None or (ring.shape, ring.dtype, ring.device) != wanted:
                ring = allocate(*wanted)
        elif ring is not None:
            dtype = torch.promote_types(ring.dtype, state.dtype)
            if (ring.dtype, ring.device) != (dtype, state.device):
                ring = ring.to(state.device, dtype)
        assert ring is not None
        if ring.is_inference():  # moved or loaded in inference mode
            old, ring = ring, allocate(ring.shape, ring.dtype, ring.device)
            ring.copy_(old)
        ring[self.steps % self.size].copy_(state)
        self._state["ring"] = ring
        self.steps += 1
        self.length = min(self.length + 1, self.size)

    # ------------------------------------------------------------------ survival
    def get_extra_state(self) -> dict[str, Any]:
        """Returns the history, oldest first, and the number of observations, for the state dict."""
        return {"history": self.dump(), "steps": self.steps}

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not a history and a number of observations."""
        place = f"`{type(self).__name__}`"
        check_state(place, state, {"history": optional(self._kind), "steps": COUNT})
        history, steps = state["history"], state["steps"]
        if history is None:
            check_that(steps == 0, place, "no steps without a `history`", steps)
            return
        fits = history.ndim > 0 and 0 < len(history) <= steps
        should = f"a `history` of at least one and at most its {steps} steps"
        check_that(fits, place, should, history)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Takes a history from a state dict; of a longer one, only the latest states.

        Raises:
            RuntimeError: if it is not one; then nothing has changed.
        """
        self.check_extra_state(state)
        history: Tensor | None = state["history"]
        self.steps = self.length = 0
        self._state = {"ring": None}
        if history is not None:
            kept = history[-self.size :]
            self._state["ring"] = allocate((self.size, *kept.shape[1:]), kept.dtype, kept.device)
            self.steps = state["steps"] - kept.shape[0]
            for row in kept:
                self._push(row)

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        return f"duration={self.duration}, dt={self.dt}"


class PassthroughReducer(HistoryReducer):
    r"""Keeps the observations of the last ``duration`` ms, :math:`y_t = s_t`.

    See :class:`HistoryReducer` for the arguments.

    Example:
        >>> import torch
        >>> from lightning_accum.functional import interp_linear
        >>> history = PassthroughReducer(duration=2.0)
        >>> for value in (1.0, 2.0, 4.0, 8.0):
        ...     history(torch.tensor([value]))
        >>> history.dump().flatten().tolist()
        [2.0, 4.0, 8.0]
        >>> history.view(0.5), history.view(0.5, interpolation=interp_linear)
        (tensor([4.]), tensor([6.]))
    """

    _kind = TENSOR

    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        return observation


class EMAReducer(HistoryReducer):
    r"""Keeps the exponential moving average, which begins at the first observation.

    .. math::
        y_0 = s_0 \qquad y_t = (1 - \alpha)\,y_{t-1} + \alpha\,s_t

    Args:
        alpha: weight :math:`\alpha` of a new observation, above 0 and at most 1.
        duration, dt: as in :class:`HistoryReducer`.

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


class CumulativeAverageReducer(HistoryReducer):
    r"""Keeps the mean of all observations since the last ``clear()``.

    .. math::
        y_t = \frac{1}{t + 1} \sum_{u = 0}^{t} s_u = y_{t-1} + \frac{s_t - y_{t-1}}{t + 1}

    See :class:`HistoryReducer` for the arguments, of which the mean does not depend.

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


def nonzero(observation: Tensor) -> Tensor:
    """Finds the spikes, which are the elements that are not zero."""
    return observation != 0


def find_events(criterion: Criterion, observation: Tensor) -> Tensor:
    """Returns booleans that are true at the events; a ``TypeError`` tells of anything else."""
    found = criterion(observation)
    if not isinstance(found, Tensor) or found.dtype != torch.bool:
        kind = found.dtype if isinstance(found, Tensor) else type(found).__name__
        raise TypeError(
            "Argument `criterion` should return booleans of the observation's shape. Found"
            f" `{kind}`: compare with a threshold."
        )
    return found


class EventReducer(HistoryReducer):
    r"""Keeps the time since the last event, in ms; infinite before the first one.

    .. math::
        y_t = \begin{cases} 0 & \text{criterion}(s_t) \\ y_{t-1} + \Delta t & \text{else}
        \end{cases}

    Between two observations the time since the event grows continuously.

    Args:
        duration, dt: as in :class:`HistoryReducer`.
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
        duration, dt: as in :class:`HistoryReducer`.
        criterion: as in :class:`EventReducer`; ``None`` if a condition comes with every
            observation.
        mode: ``"cumulative"``, all events count, or ``"nearest"``, only the latest one.
        proportional: whether the amplitude is proportional to the value observed.

    Raises:
        ValueError: if a time, the amplitude or ``mode`` is not in its range.

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
