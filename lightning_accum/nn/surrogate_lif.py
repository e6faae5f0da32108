"""Leaky integrate-and-fire neurons with a surrogate gradient, recurrent or adaptive if wanted."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, final, get_args

import torch
from torch import Tensor

from lightning_accum._checked_state import StateModule
from lightning_accum._checks import (
    check_choice,
    check_finite,
    check_type,
    check_value,
    warn_below_step,
)
from lightning_accum._compat.torch_internals import is_traced
from lightning_accum.functional.dtypes import at_least_float32
from lightning_accum.functional.surrogate_gradients import Surrogate, Triangular
from lightning_accum.functional.traces import decay_factor
from lightning_accum.nn._arguments import (
    check_spike_dtype,
    check_times,
    layer_shape,
    steps_of,
)
from lightning_accum.nn.linear import RecurrentLinear
from lightning_accum.sparse.kernel_library import has_kernel
from lightning_accum.sparse.neurons import integrate_surrogate_neurons

Gradient = Literal["none", "step", "time"]

# From so many steps on, the kernel is worth its preparation, such as a copy of the weights.
_LONG = 8


class SurrogateState(NamedTuple):
    """The state of a layer between two steps, each ``[B, N]``."""

    v: Tensor
    adaptation: Tensor  # low-pass of the neuron's own spikes
    spikes: Tensor  # of the last step


class SurrogateRun(NamedTuple):
    """A sequence of a layer, each ``[T, B, N]``."""

    raster: Tensor  # spikes, 0 or 1, [T + 1, B, N]: those before the first step come first
    membrane: Tensor  # potential that is compared with the threshold
    threshold: Tensor
    state: SurrogateState  # after the last step


@final
class SurrogateLIF(StateModule):
    r"""Leaky integrate-and-fire neurons whose spikes have a surrogate gradient.

    .. math::
        v(t) &= \alpha\, v(t - \Delta t) - v_\text{th}\, z(t - \Delta t) + I(t)
                + R\, z(t - \Delta t), \qquad \alpha = e^{-\Delta t / \tau} \\
        A(t) &= v_\text{th} + \beta\, a(t), \qquad z(t) = [v(t) \ge A(t)], \qquad
        a(t + \Delta t) = \rho\, a(t) + z(t), \quad \rho = e^{-\Delta t / \tau_a}

    A spike subtracts the threshold from the potential, and raises the threshold if :math:`\beta` is
    not zero: each sample has an adaptation of its own. The state is kept from call to call until
    :meth:`reset`; a batch of another size starts at rest. With ``gradient="time"``, its graph
    is kept too, until :meth:`reset`, :meth:`detach` or a backward pass, which frees it: a loss has
    the same gradient step by step as over the whole sequence. No gradient passes through the reset.

    After each call, :attr:`membrane` and :attr:`threshold` hold the potential and the threshold of
    every step, which rules such as :class:`~lightning_accum.EProp` record.

    Args:
        size: number of neurons, or the shape of the layer.
        tc_mem: time constant of the membrane :math:`\tau`, in ms.
        v_threshold: threshold :math:`v_\text{th}`.
        beta: strength :math:`\beta` of the adaptation, by which a spike raises the threshold.
        tc_adaptation: time constant of the adaptation :math:`\tau_a`, in ms.
        recurrent: whether the neurons of the layer are connected, by the :class:`RecurrentLinear`
            ``recurrent``, which rules train if ``size`` is a number.
        gradient: how far gradients pass: ``"none"``, to learn by local rules without a graph;
            ``"step"``, within a step and not through time; ``"time"``, backpropagation through
            time.
        surrogate: the derivative of a spike by the potential; by default the triangle of the paper,
            as wide as the threshold.
        dt: length of a time step :math:`\Delta t`, in ms.
        time_dim: ``None`` for one step per call, 0 for a sequence with time first.
        keep_states: whether to keep :attr:`membrane` and :attr:`threshold`.
        spike_dtype: dtype of the spikes, that of the input when ``None``. Booleans take the least
            time and memory to record; they have no gradient.

    Raises:
        TypeError: if the surrogate is of another type.
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> neurons = SurrogateLIF(1, tc_mem=20.0, beta=0.5, time_dim=0)
        >>> neurons(torch.tensor([[[1.2]], [[1.2]], [[1.6]]])).flatten()
        tensor([1., 0., 1.])
        >>> neurons.threshold.flatten()
        tensor([1.0000, 1.5000, 1.4975])

    Source:
        Bellec et al. 2020, doi:10.1038/s41467-020-17236-y, eqs. 6 to 9.
    """

    _shown = (
        *("size", "tc_mem", "v_threshold", "beta", "tc_adaptation"),
        *("gradient", "dt", "time_dim"),
    )

    new_in_each_call: ClassVar[tuple[str, ...]] = ("membrane", "threshold")
    """The states that each call makes anew, so that they need not be copied to be recorded."""

    def __init__(
        self,
        size: int | Sequence[int],
        tc_mem: float = 20.0,
        v_threshold: float = 1.0,
        beta: float = 0.0,
        tc_adaptation: float = 200.0,
        recurrent: bool = False,
        gradient: Gradient = "none",
        surrogate: Surrogate | None = None,
        dt: float = 1.0,
        time_dim: Literal[0] | None = None,
        keep_states: bool = True,
        spike_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_finite(v_threshold=v_threshold, beta=beta)
        check_times(0.0, dt, time_dim)
        check_spike_dtype(spike_dtype)
        check_value(v_threshold > 0, "v_threshold", v_threshold, "positive, above rest")
        check_choice("gradient", gradient, get_args(Gradient))
        if gradient != "none" and not (spike_dtype is None or spike_dtype.is_floating_point):
            raise ValueError(
                "Argument `spike_dtype` should be a floating-point dtype for spikes with a"
                f" gradient. Found `{spike_dtype = }`, `{gradient = }`."
            )
        surrogate = Triangular(width=v_threshold) if surrogate is None else surrogate
        should = "a surrogate, such as `Triangular()`"
        check_type(isinstance(surrogate, Surrogate), "surrogate", surrogate, should)
        self.size = layer_shape(size)
        self._sizes = (None, neurons := math.prod(self.size))
        self.tc_mem, self.v_threshold = tc_mem, v_threshold
        self.beta, self.tc_adaptation, self.surrogate = beta, tc_adaptation, surrogate
        self.gradient: Gradient = gradient
        self.dt, self.time_dim = dt, time_dim
        self.keep_states, self.spike_dtype = keep_states, spike_dtype
        self.decay = decay_factor(tc_mem, dt, "tc_mem")
        self.decay_adaptation = decay_factor(tc_adaptation, dt, "tc_adaptation")
        warn_below_step(dt, type(self).__name__, tc_mem=tc_mem)
        self.recurrent = RecurrentLinear(neurons) if recurrent else None
        self.reset()

    @property
    def constant_threshold(self) -> float | None:
        """The threshold if it is the same in all steps, ``None`` for neurons that adapt."""
        return None if self.beta else self.v_threshold

    # ------------------------------------------------------------------ the equations
    def _step(self, current: Tensor, before: SurrogateState) -> tuple[SurrogateState, Tensor]:
        """Takes one step of the equations; returns the state and the threshold."""
        v = self.decay * before.v - self.v_threshold * before.spikes.detach() + current
        if self.recurrent is not None:
            v = v + before.spikes @ self.recurrent.weight.T
        threshold = self.v_threshold + self.beta * before.adaptation
        spikes = self.surrogate.spike(v - threshold)
        adaptation = before.adaptation
        if self.beta:
            adaptation = self.decay_adaptation * adaptation + spikes
        return SurrogateState(v, adaptation, spikes), threshold

    def _integrate(self, current: Tensor, state: SurrogateState) -> SurrogateRun:
        """Runs a sequence step by step, the plain form of the fast loop; it may have a graph."""
        rows, first = [], state.spikes
        for now in current:
            state, threshold = self._step(now, state)
            rows.append((state.spikes, state.v, threshold.expand_as(now)))
        spikes, membrane, thresholds = (torch.stack(row) for row in zip(*rows, strict=True))
        return SurrogateRun(torch.cat([first.unsqueeze(0), spikes]), membrane, thresholds, state)

    @torch.no_grad()
    def _integrate_fast(self, current: Tensor, state: SurrogateState) -> SurrogateRun:
        """Runs a sequence without a graph, each step in the memory of its result."""
        # `state` is overwritten; spikes may be boolean instead of in the dtype of `current`.
        v, adaptation, z = state
        constants = self.decay, self.v_threshold, self.beta, self.decay_adaptation
        recurrent = None if self.recurrent is None else self.recurrent.weight.t().to(current)
        current = current.contiguous()
        membrane, base = torch.empty_like(current), current.new_full((), self.v_threshold)
        threshold = torch.empty_like(current) if self.beta else base.expand(current.shape)
        shape = (len(current) + 1, *current.shape[1:])
        if len(current) >= _LONG and has_kernel(current.device, current.dtype):
            kind = torch.bool if self.spike_dtype is torch.bool else None
            raster = current.new_empty(shape, dtype=kind)
            raster[0] = z
            weights = None if recurrent is None else recurrent.contiguous()
            limits = threshold if self.beta else None
            if integrate_surrogate_neurons(
                current, weights, state, membrane, limits, raster, constants
            ):
                return SurrogateRun(raster, membrane, threshold, state)
        raster = current.new_empty(shape)
        raster[0] = z
        spikes = raster[1:]
        rows = (current.unbind(0), membrane.unbind(0), spikes.unbind(0), threshold.unbind(0))
        for now, potential, out, limit in zip(*rows, strict=True):
            torch.add(now, v, alpha=self.decay, out=potential)
            potential.sub_(z, alpha=self.v_threshold)
            if recurrent is not None:
                potential.addmm_(z, recurrent)
            if self.beta:
                torch.add(base, adaptation, alpha=self.beta, out=limit)
                torch.ge(potential, limit, out=out)
                adaptation.mul_(self.decay_adaptation).add_(out)
            else:
                torch.ge(potential, base, out=out)
            v, z = potential, out
        state = SurrogateState(v.clone(), adaptation, z.clone())
        return SurrogateRun(raster, membrane, threshold, state)

    # ------------------------------------------------------------------ the state
    def reset(self) -> None:
        """Forgets potentials, adaptation and spikes: the next call starts at rest."""
        self._state = {"v": None, "adaptation": None, "spikes": None}
        self.steps_since_reset = 0.0
        self.membrane: Tensor | None = None
        self.threshold: Tensor | None = None

    def _load(self, like: Tensor) -> SurrogateState:
        """Returns the state for a batch ``[B, N]``; at rest if it is of another shape."""
        if self.gradient != "time":
            self.detach()
        kept = self._kept(like, like.shape, copy=True)
        return SurrogateState(*(kept or (torch.zeros_like(like) for _ in self._state)))

    # ------------------------------------------------------------------ a call
    def forward(self, x: Tensor) -> Tensor:
        """Integrates an input current.

        Args:
            x: input current, shape ``[B, *size]``, or ``[T, B, *size]`` with ``time_dim=0``.

        Returns:
            Spikes, 0 or 1, in the shape of ``x``, floating-point.

        Raises:
            ValueError: if the shape does not fit.
        """
        steps = steps_of(x, self.size, self.time_dim, least_steps=1)
        current = steps.to(dtype := at_least_float32(x.dtype)).flatten(2)
        run = self._run(current, self._load(current.detach()[0]))
        spikes = self._keep(run.raster[1:], **run.state._asdict())
        if not is_traced():
            self.steps_since_reset += len(current)
        if self.keep_states:
            self.membrane = self._shaped(run.membrane.detach())
            self.threshold = self._shaped(run.threshold.detach())
        own = x.dtype if x.is_floating_point() else dtype
        given = own if self.spike_dtype is None else self.spike_dtype
        if self.recurrent is not None:
            before_each = run.raster[:-1].detach().to(given)
            self.recurrent(before_each if self.time_dim == 0 else before_each[0], computed=True)
        return self._shaped(spikes.to(given))

    def _shaped(self, sequence: Tensor) -> Tensor:
        """Returns ``[T, B, N]`` in the shape of the layer, without time if a call is a step."""
        if len(self.size) > 1:
            sequence = sequence.unflatten(-1, self.size)
        return sequence if self.time_dim == 0 else sequence[0]

    def _run(self, current: Tensor, before: SurrogateState) -> SurrogateRun:
        """Runs a sequence with as much of a graph as ``gradient`` asks for."""
        learns = current.requires_grad or before.v.requires_grad
        learns = learns or (self.recurrent is not None and self.recurrent.weight.requires_grad)
        if self.gradient == "time" and learns and torch.is_grad_enabled():
            return self._integrate(current, before)
        run = self._integrate_fast(current, before)
        if self.gradient == "step" and current.requires_grad and torch.is_grad_enabled():
            # The potential, of which only this step's input has a graph.
            above = current + (run.membrane - run.threshold - current.detach())
            spikes = self.surrogate.spike(above)
            run = run._replace(raster=torch.cat([run.raster[:1], spikes]))
        return run
