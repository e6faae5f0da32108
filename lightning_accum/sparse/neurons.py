"""The kernel's loops over the steps of neurons, whose plain form is each step of a neuron."""

import ctypes
import math
from typing import NamedTuple, TypeGuard

import torch
from torch import Tensor

from lightning_accum._compat.torch_internals import is_traced
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.event_sums import EventProduct
from lightning_accum.sparse.kernel_library import At, Int, Real, arguments, fields

_NEURONS = 1024  # neurons of which a thread keeps three values


class _Neurons(ctypes.Structure):
    _fields_ = (
        *fields(Int, "steps batch size is_bytes period losers"),
        *fields(Real, "decay drive threshold decay_theta rise lateral"),
        *fields(At, "current v hold theta out"),
    )


class SpikingNeurons(NamedTuple):
    """The constants of integrate-and-fire neurons; potentials are relative to reset."""

    # The first five are those of `_Neurons`, in its order.
    decay: float  # factor by which the distance of a membrane potential to rest shrinks in a step
    drive: float  # what the resting potential adds to every current
    threshold: float  # threshold without its adaptation
    decay_theta: float = 1.0  # factor by which the rise of the threshold shrinks in a step
    theta_plus: float = 0.0  # rise of the threshold if all samples of the batch spike
    period: int = 0  # refractory period, in steps
    # steps for which a spike silences all other neurons; -1: it does not; None: another inhibition,
    # which no loop in C has
    losers: int | None = -1
    lateral: float = 0.0  # by how much a spike lowers the potentials of all other neurons

    @property
    def adapts(self) -> bool:
        """Whether the threshold changes."""
        return self.theta_plus != 0.0 or self.decay_theta != 1.0

    @property
    def holds(self) -> bool:
        """Whether neurons are held at reset."""
        return self.period > 0 or self.losers != -1


class NeuronState(NamedTuple):
    """The state of a layer of neurons between two steps; a potential of zero is reset."""

    v: Tensor  # membrane potential, [B, N]
    hold: Tensor  # number of steps for which a neuron is still held at reset, [B, N]
    theta: Tensor  # rise of the threshold, [N], or a zero [] if the threshold does not adapt


def integrate_neurons(
    current: Tensor | EventProduct,  # [T, B, N] input current
    out: Tensor,  # [T, B, N] receives the spikes, as booleans or in the dtype of current
    v: Tensor,  # [B, N] potential above reset, changed in place
    hold: Tensor | None,  # [B, N] steps for which a neuron is held at reset, changed in place
    theta: Tensor | None,  # [N] rise of the threshold, changed in place; None if it does not adapt
    constants: SpikingNeurons,
) -> bool:
    """Integrates a sequence, if there is a kernel for it; returns whether."""
    dtype, state = current.dtype, current.shape[1:]
    currents = current if isinstance(current, Tensor) else None
    values = (currents, current.shape), (v, state), (hold, state), (theta, state[1:])
    kernel = library.kernel_for(dtype, *values)
    fits = out.dtype in (torch.bool, dtype) and out.shape == current.shape and out.ndim == 3
    fits = fits and library.is_plain(out) and state.numel() > 0
    if kernel is None or constants.losers is None or not fits:
        return False
    compete = constants.losers != -1 or constants.lateral != 0.0
    sizes = (*current.shape, out.dtype == torch.bool, constants.period, constants.losers)
    columns = state[1] if compete or theta is not None else state.numel()
    together = max(_NEURONS, state[1] if compete else 0)
    threads = library.threads_among(-(-columns // together), out.numel())
    reals = *constants[:5], constants.lateral
    neurons = _Neurons(*sizes, *reals, *arguments(currents, v, hold, theta, out))
    if isinstance(current, EventProduct):
        moving = v, hold, theta
        return current.run(neurons) or integrate_neurons(current.values(), out, *moving, constants)
    memory = library.work_memory(threads * 3 * together * dtype.itemsize)
    kernel.integrate(ctypes.byref(neurons), memory, threads)
    return True


class NeuronSteps:
    """Takes single steps of neurons one after another, in the memory of their state."""

    # The plain form of a step is that of `integrate_neurons`, on copies of the state.

    def __init__(self, since_reset: float = math.inf) -> None:
        self.since_reset = since_reset
        self._settings: object = None  # None if there are no steps to take

    def begin(
        self,
        v: Tensor,  # [B, N] potential above reset after the step
        hold: Tensor,  # [B, N] steps for which a neuron is held at reset, likewise
        constants: SpikingNeurons,
        spike_dtype: torch.dtype,  # the dtype of the spikes
        settings: object,  # what has to be equal in the next steps
    ) -> None:
        """Prepares the steps after one, if there is a kernel for them."""
        self._settings, dtype, elements = None, v.dtype, v.numel()
        kernel = library.kernel_for(dtype, (v, v.shape), (hold, v.shape))
        fits = v.ndim == 2 and elements > 0 and spike_dtype in (torch.bool, dtype)
        fits = fits and constants.losers is not None and library.threads_among(2, elements) == 1
        if kernel is None or not fits:
            return
        self._shape, self._dtype, self._spike_dtype = v.shape, dtype, spike_dtype
        self._settings, self._holds = settings, constants.holds
        sizes = (1, *v.shape, spike_dtype == torch.bool, constants.period, constants.losers)
        reals = *constants[:5], constants.lateral
        self._neurons = _Neurons(*sizes, *reals)  # each step sets where its tensors begin
        with torch.inference_mode(False):
            room = 3 * max(_NEURONS, v.shape[1])
            self._memory = torch.empty(room, dtype=dtype, device="cpu")
        self._arguments = ctypes.byref(self._neurons), *arguments(self._memory), 1
        self._integrate = kernel.integrate

    def step(
        self, current: Tensor, state: dict[str, Tensor | None], settings: object
    ) -> Tensor | None:
        """Returns the spikes of one more step; ``None``, with no change, if it is another."""
        if self._settings is None or is_traced() or settings != self._settings:
            return None
        v, neurons = state["voltage"], self._neurons
        if type(current) is not Tensor or not self._fits(current) or not self._fits(v):
            return None
        if self._holds:
            hold = state["hold"]
            if not self._fits(hold):
                return None
            neurons.hold = hold.data_ptr()
        out = torch.empty_like(current, dtype=self._spike_dtype)
        neurons.current, neurons.v, neurons.out = current.data_ptr(), v.data_ptr(), out.data_ptr()
        self._integrate(*self._arguments)
        self.since_reset += 1
        return out

    def _fits(self, value: Tensor | None) -> TypeGuard[Tensor]:
        """Returns whether C may read or write a value of the state."""
        # `share_memory_`, `resize_` and `.data = ...` move the memory of the same object.
        if value is None or value.dtype is not self._dtype or value.shape != self._shape:
            return False
        return library.is_plain(value)


_TOGETHER = 4096  # neurons that a thread works on at a time
_WEIGHTS = 1 << 22  # bytes of recurrent weights that stay in the cache, where spikes visit them


class _Surrogate(ctypes.Structure):
    _fields_ = (
        *fields(Int, "steps batch size is_bytes"),
        *fields(Real, "decay threshold beta decay_adaptation"),
        *fields(At, "current weights v adaptation spikes membrane limits raster"),
    )


def integrate_surrogate_neurons(
    current: Tensor,  # [T, B, N] input current
    weights: Tensor | None,  # [N, N] what a spike adds, a row for each neuron that spikes
    state: tuple[Tensor, Tensor, Tensor],  # [B, N] potential, adaptation, spikes; in place
    membrane: Tensor,  # [T, B, N] receives the potential
    limits: Tensor | None,  # [T, B, N] receives the threshold; None for neurons that do not adapt
    raster: Tensor,  # [T + 1, B, N] receives the spikes from its second row on
    constants: tuple[float, float, float, float],  # decay, threshold, beta, decay of adaptation
) -> bool:
    """Integrates a sequence without a graph, if there is a kernel for it; returns whether."""
    dtype, shape = current.dtype, current.shape
    if len(shape) != 3 or not current.numel():
        return False
    steps, batch, size = shape
    values = (current, shape), (membrane, shape), (limits, shape), (weights, (size, size))
    kernel = library.kernel_for(dtype, *values, *((each, shape[1:]) for each in state))
    fits = raster.dtype in (torch.bool, dtype) and raster.shape == (steps + 1, batch, size)
    fits = fits and library.is_plain(raster) and (weights is None or weights.nbytes <= _WEIGHTS)
    if kernel is None or not fits:
        return False
    pieces = -(-batch * size // _TOGETHER) if weights is None else batch
    threads = library.threads_among(pieces, current.numel())
    places = arguments(current, weights, *state, membrane, limits, raster)
    sizes = (steps, batch, size, raster.dtype == torch.bool)
    neurons = _Surrogate(*sizes, *constants, *places)
    row = -(-size * (dtype.itemsize + 4) // 64) * 64
    memory = library.work_memory(0 if weights is None else threads * row)
    kernel.integrate_surrogate(ctypes.byref(neurons), memory, threads)
    return True
