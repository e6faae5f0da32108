"""The base of the neurons: their settings, and the state they keep from call to call."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from lightning_accum._checks import warn_below_step
from lightning_accum._compat import is_traced
from lightning_accum._state import StateModule, check_that
from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.nn._arguments import (
    check_input,
    check_options,
    check_potentials,
    check_times,
    decay_in_step,
    layer_shape,
)
from lightning_accum.nn._fast import integrate, prepare_steps
from lightning_accum.nn.inhibition import Inhibition, WinnerTakeAll
from lightning_accum.nn.state import NeuronState, Step
from lightning_accum.sparse.kernel_neurons import NeuronSteps
from lightning_accum.sparse.kernel_online import SpikingNeurons


class Neurons(StateModule, ABC):
    """The base of all integrate-and-fire neurons.

    A subclass gives the equations of one step in ``_step``. Sequences are integrated by the fast
    loops of ``nn/_fast.py``, which need the constants of the same equations from ``_constants``.
    """

    gradient: ClassVar[Literal["none"]] = "none"
    """How far gradients pass, as that of :class:`~lightning_accum.nn.SurrogateLIF`."""

    def __init__(
        self,
        size: int | Sequence[int],
        tc_mem: float = 20.0,
        v_threshold: float = 1.0,
        v_reset: float = 0.0,
        v_rest: float = 0.0,
        refractory: float = 0.0,
        dt: float = 1.0,
        time_dim: Literal[0] | None = None,
        spike_dtype: torch.dtype | None = None,
        inhibition: Inhibition | None = None,
        compile: bool = False,
    ) -> None:
        super().__init__()
        self._steps = NeuronSteps()
        check_potentials(v_threshold, v_reset, v_rest)
        check_times(refractory, dt, time_dim)
        check_options(spike_dtype, inhibition, compile)
        self.size = layer_shape(size)
        self.tc_mem = tc_mem
        self.v_threshold = v_threshold
        self.v_reset = v_reset
        self.v_rest = v_rest
        self.refractory = refractory
        self.dt = dt
        self.time_dim = time_dim
        self.spike_dtype = spike_dtype
        self.inhibition = inhibition
        self.compiled = compile  # `compile` is a method of torch.nn.Module
        self.decay = decay_in_step("tc_mem", tc_mem, dt)
        warn_below_step(dt, type(self).__name__, tc_mem=tc_mem)
        if refractory and not self._period:
            warn_below_step(dt, type(self).__name__, refractory=refractory)
        self.reset()

    # ------------------------------------------------------------------ the equations
    @abstractmethod
    def _step(self, current: Tensor, state: NeuronState) -> Step:
        """Takes one step of the equations, without changing ``state``.

        Args:
            current: input current, ``[B, N]``.
            state: the state before the step.
        """

    def _integrate_and_fire(self, current: Tensor, state: NeuronState, threshold: Any) -> Step:
        """Takes one step of integrate-and-fire neurons with a given threshold above reset."""
        rest = self.v_rest - self.v_reset
        v = rest + self.decay * (state.v - rest) + current
        v = v.masked_fill(state.hold > 0, 0.0)
        spikes = (v >= threshold).to(v.dtype)
        if self.inhibition is not None:
            self.inhibition.select(v - threshold, spikes)
        v = v.masked_fill(spikes > 0, 0.0)
        hold = torch.maximum(state.hold - 1, self._period * spikes)
        if self.inhibition is not None:
            self.inhibition.suppress(spikes, v, hold)
        return Step(spikes, NeuronState(v, hold, state.theta))

    def _constants(self, decay_theta: float = 1.0, theta_plus: float = 0.0) -> SpikingNeurons:
        """Returns the constants of the equations, for the fast loops."""
        rest, threshold = self.v_rest - self.v_reset, self.v_threshold - self.v_reset
        return SpikingNeurons(self.decay, rest, threshold, self._period, decay_theta, theta_plus)

    @property
    def _period(self) -> int:
        return round(self.refractory / self.dt)

    # ------------------------------------------------------------------ the state
    @property
    def steps_since_reset(self) -> float:
        """The number of steps since the last ``reset()``; infinite if that is not known."""
        return self._steps.since_reset

    @steps_since_reset.setter
    def steps_since_reset(self, steps: float) -> None:
        self._steps.since_reset = steps

    @property
    def voltage(self) -> Tensor | None:
        """Membrane potential after the last step, shape ``[B, *size]``, or ``None``."""
        v = self._state["voltage"]
        return None if v is None else (v + self.v_reset).unflatten(-1, self.size)

    def reset(self) -> None:
        """Forgets membrane potentials and refractory periods: the next call starts at rest."""
        self._state = {"voltage": None, "hold": None}
        self.steps_since_reset = 0.0

    def _load(self, like: Tensor) -> NeuronState:
        """Returns the state for a batch ``[B, N]``; at rest if the last batch had another shape."""
        v, hold = self._state["voltage"], self._state["hold"]
        if v is None or hold is None or not v.shape == hold.shape == like.shape:
            v, hold = torch.full_like(like, self.v_rest - self.v_reset), torch.zeros_like(like)
        else:
            holds = self._period > 0 or self.inhibition is not None  # or `hold` stays as it is
            v, hold = v.to(like, copy=True), hold.to(like, copy=holds)
        return NeuronState(v, hold, self._theta(like))

    def _theta(self, like: Tensor) -> Tensor:
        """Returns the rise of the threshold, which a sequence changes in place."""
        return like.new_zeros(())

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if these are not the potential and holds of such neurons."""
        super().check_extra_state(state)
        size = math.prod(self.size)
        for key, value in state.items():
            if value is not None:
                fits = value.is_floating_point() and value.ndim == 2 and value.shape[1] == size
                should = f"floating-point numbers of shape [B, {size}] as `{key}`"
                check_that(fits, f"`{type(self).__name__}`", should, value)

    # ------------------------------------------------------------------ in another loop
    def loop_constants(self) -> SpikingNeurons | None:
        """Returns the constants for a loop in C; ``None`` for an inhibition that it does not have.

        The loop takes the state from :meth:`begin_loop` and leaves it with :meth:`end_loop`.
        """
        if self.inhibition is None:
            return self._constants()
        if isinstance(self.inhibition, WinnerTakeAll):
            return self._constants()._replace(losers=self.inhibition.steps)
        return None

    def begin_loop(self, like: Tensor) -> NeuronState:
        """Returns copies of the state for a batch ``[B, N]``."""
        state = self._load(like)
        return state._replace(theta=state.theta.to(like).expand(like.shape[1:]).clone())

    def end_loop(self, state: NeuronState, steps: int) -> None:
        """Takes the state after a loop of so many steps."""
        self._state = {"voltage": state.v, "hold": state.hold}
        theta = self._theta(state.v)
        if theta.ndim:  # the threshold adapts
            theta.copy_(state.theta)
        self._steps.since_reset += steps

    # ------------------------------------------------------------------ a call
    def forward(self, x: Tensor) -> Tensor:
        """Integrates an input current. No gradient passes.

        Args:
            x: input current, shape ``[B, *size]``, or ``[T, B, *size]`` with ``time_dim=0``.

        Returns:
            Spikes, 0 or 1, in the shape of ``x``, in its dtype or in ``spike_dtype``.

        Raises:
            ValueError: if the shape does not fit.
            RuntimeError: if there is no compiler for ``compile=True``.
        """
        constants = self._constants()
        settings = constants, self.spike_dtype, self.compiled, self.inhibition, self.time_dim
        spikes = self._steps.step(x, self._state, settings)
        return self._call(x, constants, settings) if spikes is None else spikes

    @torch.no_grad()
    def _call(self, x: Tensor, constants: SpikingNeurons, settings: tuple[object, ...]) -> Tensor:
        """Takes any call, and prepares steps that may follow a single one."""
        check_input(x, self.size, self.time_dim)
        # Half precision would lose small currents in the sum over time.
        dtype = at_least_float32(x.dtype)
        steps, batch = (1, x.shape[0]) if self.time_dim is None else x.shape[:2]
        current = x.detach().to(dtype).reshape(steps, batch, math.prod(self.size))
        spike_dtype = self.spike_dtype or (x.dtype if x.is_floating_point() else dtype)
        state = self._load(current[0] if steps else current.new_empty(current.shape[1:]))
        if is_traced():
            spikes, state = self._integrate(current, state, spike_dtype)
        else:
            spikes, state = integrate(
                constants, self.inhibition, current, state, spike_dtype, self.compiled
            )
            self._steps.since_reset += steps
            alone = self.time_dim is None and self.inhibition is None and not self.compiled
            if alone and state.theta.ndim == 0:
                prepare_steps(self._steps, constants, state, spike_dtype, settings)
        self._state = {"voltage": state.v, "hold": state.hold}
        # An index takes a third of a view's time, which counts in a single step.
        return spikes[0] if x.ndim == 2 else spikes.view(x.shape)

    def _integrate(
        self, current: Tensor, state: NeuronState, spike_dtype: torch.dtype
    ) -> tuple[Tensor, NeuronState]:
        """Integrates a sequence step by step: the plain form of :func:`_fast.integrate`."""
        spikes, theta = [], state.theta
        for i in current:
            step = self._step(i, state)
            spikes.append(step.spikes)
            state = step.state
        if state.theta is not theta:
            theta.copy_(state.theta)
        out = torch.stack(spikes) if spikes else torch.empty_like(current)
        return out.to(spike_dtype), state

    def __getstate__(self) -> dict[str, Any]:
        # Steps go on in the memory of the state, which a shallow copy would share.
        state = {k: None if v is None else v.clone() for k, v in self._state.items()}
        return {**self.__dict__, "_state": state, "_steps": NeuronSteps(self.steps_since_reset)}

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        return (
            f"size={self.size}, tc_mem={self.tc_mem}, v_threshold={self.v_threshold}, "
            f"refractory={self.refractory}, dt={self.dt}, time_dim={self.time_dim}, "
            f"inhibition={self.inhibition}, compile={self.compiled}"
        )
