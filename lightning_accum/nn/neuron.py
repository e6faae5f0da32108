"""Leaky integrate-and-fire neurons, for one time step a call or for a whole sequence."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_numbers, check_tensors, warn_below_step
from lightning_accum._compat import is_traced
from lightning_accum._state import StateModule, check_that
from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.nn._compiled import integrate_blocks
from lightning_accum.nn.inhibition import Inhibition

# Steps up to which a call is no sequence to prepare for, and those whose spikes are cast together.
_FEW, _TOGETHER = 3, 16
# Steps that are counted in single precision, with room for a sequence as long.
_LONGEST = 1 << 23


def _steps(first: int, end: int, like: Tensor) -> tuple[Tensor, ...]:
    return torch.arange(first, end, dtype=like.dtype, device=like.device).unbind(0)


def _decay(name: str, tc: float, dt: float) -> float:
    check_numbers(**{name: tc})
    if not tc > 0:
        raise ValueError(
            f"Argument `{name}` should be a positive time constant in ms. Found `{name} = {tc}`."
        )
    return math.exp(-dt / tc)


def _sizes(size: int | Sequence[int]) -> tuple[int, ...]:
    try:
        sizes = (size,) if isinstance(size, int) else tuple(size)
    except TypeError:
        sizes = ()
    if not sizes or not all(isinstance(n, int) and 0 <= n < 2**63 for n in sizes):
        found = repr(size) if isinstance(size, (int, float, str, tuple, list)) else type(size)
        raise ValueError(
            "Argument `size` should be a number of neurons, or the shape of a layer. Found"
            f" `size = {found}`."
        )
    return sizes


class Neurons(StateModule):
    """What all integrate-and-fire neurons share: the recurrence and its state.

    Not for direct use. A subclass says what the threshold is, and how it changes.
    """

    def __init__(
        self,
        size: int | Sequence[int],
        tc_mem: float,
        v_threshold: float,
        v_reset: float,
        v_rest: float,
        refractory: float,
        dt: float,
        time_dim: Literal[0] | None,
        spike_dtype: torch.dtype | None,
        inhibition: Inhibition | None,
        compile: bool,
    ) -> None:
        super().__init__()
        check_finite(
            v_threshold=v_threshold, v_reset=v_reset, v_rest=v_rest, refractory=refractory, dt=dt
        )
        if not dt > 0:
            raise ValueError(
                f"Argument `dt` should be a positive step length in ms. Found `dt = {dt}`."
            )
        if not max(v_reset, v_rest) < v_threshold:
            raise ValueError(
                "Argument `v_threshold` should lie above `v_reset` and `v_rest`. Found "
                f"`v_threshold = {v_threshold}`, `v_reset = {v_reset}`, `v_rest = {v_rest}`."
            )
        if not 0 <= refractory <= _LONGEST * dt:
            raise ValueError(
                "Argument `refractory` should be a non-negative period in ms, of at most"
                f" {_LONGEST} steps. Found `refractory = {refractory}`, `dt = {dt}`."
            )
        if time_dim is not None and not (isinstance(time_dim, int) and time_dim == 0):
            raise ValueError(
                "Argument `time_dim` should be `None` (one step a call) or 0 (a sequence, time "
                f"first). Found `time_dim = {time_dim}`. Transpose the input."
            )
        if compile and inhibition is not None:
            raise ValueError(
                "Argument `compile` should be False where there is `inhibition`, which is not "
                f"compiled. Found `compile = {compile}`, `inhibition = {inhibition}`."
            )
        self.size = _sizes(size)
        self.tc_mem = tc_mem
        self.v_threshold = v_threshold
        self.v_reset = v_reset
        self.v_rest = v_rest
        self.refractory = refractory
        self.dt = dt
        self.time_dim = time_dim
        if spike_dtype is not None and not isinstance(spike_dtype, torch.dtype):
            raise TypeError(
                "Argument `spike_dtype` should be a torch.dtype, or None. Found"
                f" `{spike_dtype = }`."
            )
        if inhibition is not None and not callable(getattr(inhibition, "select", None)):
            raise TypeError(
                "Argument `inhibition` should be an inhibition, such as"
                f" `WinnerTakeAll()`, or None. Found `{type(inhibition).__name__}`."
            )
        self.spike_dtype = spike_dtype
        self.inhibition = inhibition
        self.compiled = compile  # a Module's `compile` is another thing
        self.decay = _decay("tc_mem", tc_mem, dt)
        warn_below_step(dt, type(self).__name__, tc_mem=tc_mem)
        self.reset()

    @abstractmethod
    def _threshold(self, like: Tensor) -> Tensor:
        """Threshold above reset, shape ``[N]`` or ``[]``, a tensor that may be written to."""

    @abstractmethod
    def _adaptation(self) -> tuple[Tensor, float, float] | None:
        """What the threshold has risen by, ``[N]``, its decay and its rise, if it adapts now."""

    @property
    def voltage(self) -> Tensor | None:
        """Membrane potential after the last step, shape ``[B, *size]``, or ``None``."""
        v = self._state["voltage"]
        return None if v is None else (v + self.v_reset).unflatten(-1, self.size)

    def reset(self) -> None:
        """Forgets the membrane potential and what is held: the next call starts from rest."""
        self._state = {"voltage": None, "hold": None}

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Integrates an input current. No gradient passes.

        Args:
            x: input current, shape ``[B, *size]``, or ``[T, B, *size]`` with ``time_dim=0``.

        Returns:
            Spikes, 0 or 1, in the shape of ``x``, in its dtype or in ``spike_dtype``.

        Raises:
            ValueError: the shape does not fit.
            RuntimeError: there is no compiler for ``compile=True``.
        """
        check_tensors(x=x)
        lead = 1 if self.time_dim is None else 2
        if x.ndim != lead + len(self.size) or x.shape[lead:] != self.size:
            expected = ", ".join(["T", "B"][2 - lead :] + [str(n) for n in self.size])
            raise ValueError(
                f"Argument `x` should have shape [{expected}], as `time_dim = {self.time_dim}`. "
                f"Found shape {list(x.shape)}."
            )
        # half precision would lose small currents in the sum over time
        dtype = at_least_float32(x.dtype)
        steps, batch = (1, x.shape[0]) if lead == 1 else x.shape[:2]
        current = x.detach().to(dtype).reshape(steps, batch, math.prod(self.size))
        if self.v_rest != self.v_reset:
            current = current + (1 - self.decay) * (self.v_rest - self.v_reset)
        spikes = torch.empty(
            current.shape,
            dtype=self.spike_dtype or (x.dtype if x.is_floating_point() else dtype),
            device=x.device,
        )
        self._integrate(current, spikes)
        return spikes.view(x.shape)

    def _integrate(self, current: Tensor, out: Tensor) -> None:
        # potentials are relative to reset, so that to reset is to multiply by a mask; masks are
        # float and buffers are written in place: several times faster than `torch.where`
        like = current.new_empty(current.shape[1:])
        v = self._carried("voltage", like, self.v_rest - self.v_reset)
        hold = self._carried("hold", like, 0.0)
        period = round(self.refractory / self.dt)
        holds = period > 0 or self.inhibition is not None
        threshold = self._threshold(like)
        adaptation = self._adaptation() if len(like) else None  # which has no mean of no samples
        theta, decay_theta, rise = adaptation or (None, 1.0, 0.0)
        fixed = self.v_threshold - self.v_reset
        inhibition = self.inhibition
        if self.compiled and inhibition is None and not is_traced():
            done = integrate_blocks(
                current,
                out,
                v,
                hold if holds else None,
                threshold,
                theta,
                (self.decay, float(period), decay_theta, rise, fixed),
            )
            current, out = current[done:], out[done:]
        free, work = torch.empty_like(like), torch.empty_like(like)
        steps, straight = len(current), out.dtype == like.dtype
        room = out if straight else like.new_empty(min(steps, _TOGETHER), *like.shape)
        rows = room.unbind(0)
        if theta is not None:
            share = like.new_full((len(like),), rise / len(like))
        until: Tensor | None = None
        if period and inhibition is None and steps > _FEW:
            # who is held needs no reset as well, and is held until a step, not for some
            until, ends = hold - 1, _steps(period, period + steps, like)
        for t, i in enumerate(current.unbind(0)):
            place = t % len(rows)
            spikes = rows[place]
            torch.add(i, v, alpha=self.decay, out=v)
            if until is not None:
                v.mul_(torch.le(until, t - 1, out=free))
            elif holds:
                v.mul_(torch.le(hold, 0, out=free))
                hold.sub_(1)
            torch.ge(v, threshold, out=spikes)
            if until is not None:
                torch.lerp(until, ends[t], spikes, out=until)
            else:
                if inhibition is not None:
                    inhibition.select(torch.sub(v, threshold, out=work), spikes)
                v.addcmul_(v, spikes, value=-1)
                if period:
                    torch.maximum(hold, torch.mul(spikes, float(period), out=work), out=hold)
                if inhibition is not None:
                    inhibition.suppress(spikes, v, hold)
            if not straight and (place == len(rows) - 1 or t == steps - 1):
                out[t - place : t + 1].copy_(room[: place + 1])
            if theta is not None:
                if theta.dtype == spikes.dtype:
                    theta.addmv_(spikes.T, share, beta=decay_theta)
                else:
                    theta.mul_(decay_theta).add_(spikes.mean(0), alpha=rise)
                torch.add(theta, fixed, out=threshold)
        if until is not None:
            v.addcmul_(v, rows[place], value=-1)
            hold = until.sub_(steps - 1).clamp_(min=0)
        self._state = {"voltage": v, "hold": hold}

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not a potential, and a hold, of such neurons."""
        super().check_extra_state(state)
        for key, value in state.items():
            size = math.prod(self.size)
            if value is not None:
                fits = value.is_floating_point() and value.ndim == 2 and value.shape[1] == size
                should = f"floating-point numbers of shape [B, {size}] as `{key}`"
                check_that(fits, f"`{type(self).__name__}`", should, value)

    def _carried(self, name: str, like: Tensor, rest: float) -> Tensor:
        state = self._state[name]
        if state is None or state.shape != like.shape:
            return torch.full_like(like, rest)
        return state.to(like, copy=True)

    def extra_repr(self) -> str:
        """Returns the settings shown in the module's representation."""
        return (
            f"size={self.size}, tc_mem={self.tc_mem}, v_threshold={self.v_threshold}, "
            f"refractory={self.refractory}, dt={self.dt}, time_dim={self.time_dim}, "
            f"inhibition={self.inhibition}, compile={self.compiled}"
        )


@final
class LIF(Neurons):
    r"""Leaky integrate-and-fire neurons.

    .. math::
        V_t = V_\text{rest} + (V_{t-1} - V_\text{rest}) \, e^{-\Delta t / \tau} + I_t, \qquad
        s_t = [V_t \ge V_\text{th}]

    A neuron that spikes is reset, and held at reset for its refractory period. The state is kept
    from call to call until `reset`; a batch of another size starts from rest. Steps one by one and
    a whole sequence at once give the same spikes.

    Args:
        size: shape of the layer, without batch and time.
        tc_mem: time constant of the membrane :math:`\tau`, in ms.
        v_threshold: threshold :math:`V_\text{th}`.
        v_reset: potential after a spike.
        v_rest: resting potential :math:`V_\text{rest}`.
        refractory: refractory period in ms, rounded to whole steps.
        dt: length of a time step :math:`\Delta t`, in ms.
        time_dim: ``None`` for one step a call, 0 for a sequence with time first.
        spike_dtype: dtype of the spikes, by default that of the input.
        inhibition: lateral inhibition, e.g. `WinnerTakeAll`.
        compile: whether sequences are integrated ten steps at a time, by code that is compiled at
            the first of them, which takes seconds and needs a C++ compiler. Potential and
            threshold differ by rounding, and so may a spike at the very threshold. Not together
            with ``inhibition``.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> import torch
        >>> neurons = LIF(2, tc_mem=20.0, refractory=1.0, time_dim=0)
        >>> neurons(torch.tensor([[[1.0, 0.6]], [[1.0, 0.6]], [[1.0, 0.6]]])).squeeze(1)
        tensor([[1., 0.],
                [0., 1.],
                [1., 0.]])
    """

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
        super().__init__(
            size,
            tc_mem,
            v_threshold,
            v_reset,
            v_rest,
            refractory,
            dt,
            time_dim,
            spike_dtype,
            inhibition,
            compile,
        )

    def _threshold(self, like: Tensor) -> Tensor:
        return like.new_tensor(self.v_threshold - self.v_reset)

    def _adaptation(self) -> None:
        return None


@final
class AdaptiveLIF(Neurons):
    r"""Leaky integrate-and-fire neurons with a threshold that rises with each neuron's activity.

    .. math::
        s_t = [V_t \ge V_\text{th} + \theta_t], \qquad
        \theta_{t+1} = \theta_t \, e^{-\Delta t / \tau_\theta}
        + \frac{\theta_+}{B} \sum_b s_{t,b}

    A neuron that spikes often becomes harder to excite, so that all take part (homeostasis; Diehl
    & Cook 2015, doi:10.3389/fncom.2015.00099). :math:`\theta` is one per neuron, shared by the
    batch. It is learned: it changes in training mode alone, outlives `reset`, and is a buffer of
    the state dict. All else is as in `LIF`.

    Args:
        size: shape of the layer, without batch and time.
        tc_mem: time constant of the membrane, in ms.
        theta_plus: rise of the threshold per spike and sample of the batch :math:`\theta_+`.
        tc_theta: time constant by which the threshold returns, in ms; ``inf`` for never.
        v_threshold: threshold :math:`V_\text{th}` without adaptation.
        v_reset: potential after a spike.
        v_rest: resting potential.
        refractory: refractory period in ms, rounded to whole steps.
        dt: length of a time step :math:`\Delta t`, in ms.
        time_dim: ``None`` for one step a call, 0 for a sequence with time first.
        spike_dtype: dtype of the spikes, by default that of the input.
        inhibition: lateral inhibition, e.g. `WinnerTakeAll`.
        compile: whether sequences are integrated ten steps at a time, by code that is compiled at
            the first of them, which takes seconds and needs a C++ compiler. Potential and
            threshold differ by rounding, and so may a spike at the very threshold. Not together
            with ``inhibition``.

    Raises:
        ValueError: an argument is out of range.

    Example:
        >>> import torch
        >>> neurons = AdaptiveLIF(1, tc_mem=20.0, theta_plus=0.5, time_dim=0)
        >>> neurons(torch.tensor([[[1.2]], [[1.2]], [[1.6]]])).flatten()
        tensor([1., 0., 1.])
        >>> neurons.theta
        tensor([1.])
    """

    theta: Tensor

    def __init__(
        self,
        size: int | Sequence[int],
        tc_mem: float = 20.0,
        theta_plus: float = 0.05,
        tc_theta: float = math.inf,
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
        super().__init__(
            size,
            tc_mem,
            v_threshold,
            v_reset,
            v_rest,
            refractory,
            dt,
            time_dim,
            spike_dtype,
            inhibition,
            compile,
        )
        check_finite(theta_plus=theta_plus)
        if not theta_plus >= 0:
            raise ValueError(
                "Argument `theta_plus` should be a non-negative potential. "
                f"Found `theta_plus = {theta_plus}`."
            )
        self.theta_plus = theta_plus
        self.tc_theta = tc_theta
        self.decay_theta = _decay("tc_theta", tc_theta, dt)
        self.register_buffer("theta", torch.zeros(self.size))

    def _threshold(self, like: Tensor) -> Tensor:
        return self.theta.flatten().to(like) + (self.v_threshold - self.v_reset)

    def _adaptation(self) -> tuple[Tensor, float, float] | None:
        return (self.theta.view(-1), self.decay_theta, self.theta_plus) if self.training else None

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AdaptiveLIF:
        theta = self.theta
        super()._apply(fn, recurse)
        if self.theta.dtype in (torch.float16, torch.bfloat16):  # would lose small rises
            self.theta = theta.to(self.theta.device)
        return self
