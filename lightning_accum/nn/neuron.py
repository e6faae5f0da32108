"""Leaky integrate-and-fire neurons, with a constant and with an adaptive threshold."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor

from lightning_accum._checked_state import StateModule
from lightning_accum._checks import check_finite, check_type, check_value, warn_below_step
from lightning_accum._compat.torch_internals import is_traced
from lightning_accum.functional.traces import decay_factor
from lightning_accum.nn import _arguments as arguments
from lightning_accum.nn._fast import integrate
from lightning_accum.nn.competition import Inhibition, LateralInhibition, WideTheta, WinnerTakeAll
from lightning_accum.sparse.event_sums import EventProduct
from lightning_accum.sparse.neurons import (
    NeuronState,
    NeuronSteps,
    SpikingNeurons,
    integrate_neurons,
)


class Neurons(StateModule, ABC):
    """The base of all integrate-and-fire neurons."""

    # A subclass gives the equations of one step in `_step`. The fast loops of sequences need the
    # constants of the same equations from `_constants`.

    _shown = (
        *("size", "tc_mem", "v_threshold", "refractory", "dt", "time_dim"),
        *("inhibition", "compiled"),
    )

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
        check_finite(v_threshold=v_threshold, v_reset=v_reset, v_rest=v_rest)
        should = f"above `v_reset = {v_reset}` and `v_rest = {v_rest}`"
        check_value(max(v_reset, v_rest) < v_threshold, "v_threshold", v_threshold, should)
        arguments.check_times(refractory, dt, time_dim)
        arguments.check_spike_dtype(spike_dtype)
        usable = callable(getattr(inhibition, "select", None)) and not isinstance(inhibition, type)
        should = "an inhibition, such as `WinnerTakeAll(steps=0)`, or None"
        check_type(inhibition is None or usable, "inhibition", inhibition, should)
        should = f"False if there is `inhibition`, which is not compiled, as `{inhibition}`"
        check_value(inhibition is None or not compile, "compile", compile, should)
        self.size = arguments.layer_shape(size)
        self._sizes = (None, math.prod(self.size))
        self.tc_mem, self.refractory, self.dt, self.time_dim = tc_mem, refractory, dt, time_dim
        self.v_threshold, self.v_reset, self.v_rest = v_threshold, v_reset, v_rest
        self.spike_dtype, self.inhibition = spike_dtype, inhibition
        self.compiled = compile  # `compile` is a method of torch.nn.Module
        self.decay = decay_factor(tc_mem, dt, "tc_mem")
        warn_below_step(dt, type(self).__name__, tc_mem=tc_mem)
        self._period = round(refractory / dt)
        if refractory and not self._period:
            warn_below_step(dt, type(self).__name__, refractory=refractory)
        self.reset()

    # ------------------------------------------------------------------ the equations
    @abstractmethod
    def _step(self, current: Tensor, state: NeuronState) -> tuple[Tensor, NeuronState]:
        """Takes a step of the equations for ``[B, N]`` currents; returns spikes and state."""

    def _integrate_and_fire(
        self, current: Tensor, state: NeuronState, threshold: Any
    ) -> tuple[Tensor, NeuronState]:
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
        return spikes, NeuronState(v, hold, state.theta)

    def _constants(self, decay_theta: float = 1.0, theta_plus: float = 0.0) -> SpikingNeurons:
        """Returns the constants of the equations, for the fast loops."""
        drive = (1 - self.decay) * (self.v_rest - self.v_reset)
        numbers = self.decay, drive, self.v_threshold - self.v_reset, decay_theta, theta_plus
        losers, lateral = -1 if self.inhibition is None else None, 0.0
        if isinstance(self.inhibition, WinnerTakeAll):
            losers = self.inhibition.steps
        elif isinstance(self.inhibition, LateralInhibition):
            losers, lateral = -1, self.inhibition.strength
        return SpikingNeurons(*numbers, self._period, losers, lateral)

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
        self._steps.since_reset = 0.0

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

    # ------------------------------------------------------------------ in another loop
    def loop_constants(self) -> SpikingNeurons | None:
        """Returns the constants for a loop in C; ``None`` if it does not have the inhibition."""
        constants = self._constants()
        return None if constants.losers is None or constants.lateral else constants

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
        settings = constants, self.spike_dtype, self.inhibition, self.time_dim
        spikes = None if self.time_dim == 0 else self._steps.step(x, self._state, settings)
        return self._call(x, constants, settings) if spikes is None else spikes

    @torch.no_grad()
    def _call(
        self, x: Tensor | EventProduct, constants: SpikingNeurons, settings: tuple[object, ...]
    ) -> Tensor:
        """Takes any call, and prepares steps that may follow a single one."""
        lead, current = 1 if self.time_dim is None else 2, x
        if isinstance(x, EventProduct) and (lead == 1 or x.shape[2:] != self.size):
            x = x.values()
        if not isinstance(x, EventProduct):
            if not isinstance(x, Tensor) or x.shape[lead:] != self.size:
                arguments.steps_of(x, self.size, self.time_dim)
            # Half precision would lose small currents in the sum over time.
            current = x.detach().to(torch.promote_types(x.dtype, torch.float32))
            current = current.reshape(*(1, *x.shape[:lead])[-2:], math.prod(self.size))
        spike_dtype = self.spike_dtype or (x.dtype if x.dtype.is_floating_point else current.dtype)
        spikes, state = self._run(current, constants, spike_dtype)
        self._state = {"voltage": state.v, "hold": state.hold}
        if self.time_dim == 0:
            return spikes.view(x.shape)
        if not state.theta.ndim and not is_traced():
            self._steps.begin(state.v, state.hold, constants, spike_dtype, settings)
        # An index takes a third of a view's time, which counts in a single step.
        return spikes[0] if len(x.shape) == 2 else spikes.view(x.shape)

    def _run(
        self, current: Tensor | EventProduct, constants: SpikingNeurons, spike_dtype: torch.dtype
    ) -> tuple[Tensor, NeuronState]:
        """Returns the spikes of currents and the state: by the kernel where there is one."""
        source = current.weight if isinstance(current, EventProduct) else current
        whole = source is current and len(source) > 0
        state = self._load(source[0] if whole else source.new_empty(current.shape[1:]))
        out = torch.empty(current.shape, dtype=spike_dtype, device=state.v.device)
        hold, theta = state.hold if constants.holds else None, state.theta
        moving = state.v, hold, theta if theta.ndim else None
        if not integrate_neurons(current, out, *moving, constants):
            current = current.values() if isinstance(current, EventProduct) else current
            if is_traced():
                return self._integrate(current, state, spike_dtype)
            state = integrate(constants, self.inhibition, current, out, state, self.compiled)
        self._steps.since_reset += len(out)
        return out, state

    def _integrate(
        self, current: Tensor, state: NeuronState, spike_dtype: torch.dtype
    ) -> tuple[Tensor, NeuronState]:
        """Integrates a sequence step by step: the plain form of :func:`_fast.integrate`."""
        spikes, theta = [], state.theta
        for i in current:
            now, state = self._step(i, state)
            spikes.append(now)
        if state.theta is not theta:
            theta.copy_(state.theta)
        return (torch.stack(spikes) if spikes else torch.empty_like(current)).to(spike_dtype), state

    def __getstate__(self) -> dict[str, Any]:
        # Steps go on in the memory of the state, which a shallow copy would share.
        return {**super().__getstate__(), "_steps": NeuronSteps(self.steps_since_reset)}


@final
class LIF(Neurons):
    r"""Leaky integrate-and-fire neurons.

    .. math::
        V_t = V_\text{rest} + (V_{t-1} - V_\text{rest}) \, e^{-\Delta t / \tau} + I_t, \qquad
        s_t = [V_t \ge V_\text{th}]

    A neuron that spikes is reset, and held at reset for its refractory period. The state is kept
    from call to call until :meth:`reset`; a batch of another size starts from rest. A sequence
    gives the same spikes whether it is passed whole or step by step.

    Args:
        size: shape of the layer, without batch and time.
        tc_mem: time constant of the membrane :math:`\tau`, in ms.
        v_threshold: threshold :math:`V_\text{th}`.
        v_reset: potential after a spike.
        v_rest: resting potential :math:`V_\text{rest}`.
        refractory: refractory period in ms, rounded to whole steps.
        dt: length of a time step :math:`\Delta t`, in ms.
        time_dim: ``None`` for one step per call, 0 for a sequence with time first.
        spike_dtype: dtype of the spikes, by default that of the input.
        inhibition: lateral inhibition, e.g. `WinnerTakeAll`.
        compile: whether sequences on a device for which the package has no kernel are integrated
            ten steps at a time, by code that torch compiles for the first sequence, which takes
            seconds. Potentials differ by rounding, and so may spikes of potentials equal to the
            threshold. Not supported with ``inhibition``.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> neurons = LIF(2, tc_mem=20.0, refractory=1.0, time_dim=0)
        >>> neurons(torch.tensor([[[1.0, 0.6]], [[1.0, 0.6]], [[1.0, 0.6]]])).squeeze(1)
        tensor([[1., 0.],
                [0., 1.],
                [1., 0.]])
    """

    def _step(self, current: Tensor, state: NeuronState) -> tuple[Tensor, NeuronState]:
        return self._integrate_and_fire(current, state, self.v_threshold - self.v_reset)


@final
class AdaptiveLIF(WideTheta, Neurons):
    r"""Leaky integrate-and-fire neurons with a threshold that rises with each neuron's activity.

    .. math::
        s_t = [V_t \ge V_\text{th} + \theta_t], \qquad
        \theta_{t+1} = \theta_t \, e^{-\Delta t / \tau_\theta}
        + \frac{\theta_+}{B} \sum_b s_{t,b}

    A neuron that spikes often becomes harder to excite, so that all neurons take part
    (homeostasis). Each neuron has one :math:`\theta` for all samples of the batch. It is learned:
    it changes only in training mode, survives :meth:`reset`, and is a buffer of the state dict.
    Otherwise these neurons are like :class:`LIF`.

    A threshold settles where rise and return balance: at :math:`\theta_+ \, \bar s \, \tau_\theta /
    \Delta t`, if the neuron fires in a share :math:`\bar s` of the steps. With the default, which
    never returns, it rises until hardly a neuron fires.

    Args:
        size: shape of the layer, without batch and time.
        tc_mem: time constant of the membrane, in ms.
        theta_plus: rise of the threshold :math:`\theta_+` if all samples of the batch spike.
        tc_theta: time constant with which the threshold returns, in ms; ``inf`` if it never does.
        **options: the other options of :class:`LIF`: ``v_threshold``, which is
            :math:`V_\text{th}` without adaptation, ``v_reset``, ``v_rest``, ``refractory``, ``dt``,
            ``time_dim``, ``spike_dtype``, ``inhibition`` and ``compile``.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> neurons = AdaptiveLIF(1, tc_mem=20.0, theta_plus=0.5, time_dim=0)
        >>> neurons(torch.tensor([[[1.2]], [[1.2]], [[1.6]]])).flatten()
        tensor([1., 0., 1.])
        >>> neurons.theta
        tensor([1.])

    Source:
        Diehl & Cook 2015, "Unsupervised learning of digit recognition using spike-timing-dependent
        plasticity", doi:10.3389/fncom.2015.00099.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        tc_mem: float = 20.0,
        theta_plus: float = 0.05,
        tc_theta: float = math.inf,
        **options: Any,
    ) -> None:
        super().__init__(size, tc_mem, **options)
        check_finite(theta_plus=theta_plus)
        check_value(theta_plus >= 0, "theta_plus", theta_plus, "a non-negative potential")
        self.theta_plus = theta_plus
        self.tc_theta = tc_theta
        self.decay_theta = decay_factor(tc_theta, self.dt, "tc_theta")
        warn_below_step(self.dt, type(self).__name__, tc_theta=tc_theta)
        self.register_buffer("theta", torch.zeros(self.size))

    def _step(self, current: Tensor, state: NeuronState) -> tuple[Tensor, NeuronState]:
        threshold = self.v_threshold - self.v_reset + state.theta.to(current)
        spikes, state = self._integrate_and_fire(current, state, threshold)
        if self.training and len(spikes):  # no samples have no mean
            rise = self.theta_plus * spikes.mean(0).to(state.theta)
            state = state._replace(theta=self.decay_theta * state.theta + rise)
        return spikes, state

    def _constants(self, *adaptation: float) -> SpikingNeurons:
        own = (self.decay_theta, self.theta_plus) if self.training else adaptation
        return super()._constants(*own)

    def _theta(self, like: Tensor) -> Tensor:
        return self.theta.view(-1)
