"""The Poisson encoder, which turns intensities into spikes."""

import math
import sys
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from lightning_accum._checked_state import CheckedState, Kind, check_state, optional
from lightning_accum._checks import (
    check_counts,
    check_finite,
    check_integers,
    check_positive,
    check_range,
    check_shape,
    check_tensors,
    check_value,
)
from lightning_accum.functional.dtypes import widened
from lightning_accum.functional.surrogate_gradients import poisson_encode
from lightning_accum.nn._arguments import check_times


def _is_generator(state: Any) -> bool:
    """Returns whether a generator takes a state."""
    try:
        torch.Generator().set_state(state.cpu())
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        return False
    return True


_GENERATOR = Kind("the state of a torch.Generator of the CPU", _is_generator)


def _scaled(x: Tensor, norm: float) -> Tensor:
    """Returns samples ``[B, ...]`` that are scaled to one norm, as far as 1 is not exceeded."""
    check_shape(x.ndim > 1, "x", x, "shape [B, ...]", "`norm` is that of each sample")
    most = math.sqrt(x[0].numel()) if len(x) else math.inf
    should = f"at most {most:g}, that of samples of ones of shape {list(x.shape[1:])}"
    check_value(norm <= most, "norm", norm, should)
    should, how = "hold finite intensities of at least 0", "subtract the lowest, and look for NaN"
    check_range("x", x, sys.float_info.max, should, f": {how} and inf")
    wide, sample = widened(x.detach()), (*range(1, x.ndim),)
    # Relative to the largest, whose square neither overflows nor vanishes.
    peak = wide.abs().amax(sample, keepdim=True)
    wide = wide / peak.where(peak != 0, 1.0)
    total = torch.linalg.vector_norm(wide, 2, sample, keepdim=True)
    scaled: Tensor = wide / total.where(total != 0, 1.0) * norm
    return scaled.clamp(max=1.0)


class PoissonEncoder(CheckedState):
    r"""Turns intensities into Poisson spike trains of a given rate.

    .. math::
        s_t \sim \text{Bernoulli}\left(x \cdot r_\text{max} \frac{\Delta t}{1000}\right)

    With a ``norm``, intensities :math:`x` of any scale are first replaced by

    .. math::
        x' = \min\left(1, \; n \, x / \lVert x \rVert_2\right)

    for each sample, so that bold and faint samples, and those of more pixels, excite a neuron alike
    and one threshold suits all. Intensities that would exceed 1 saturate, so that the norm falls
    short of :math:`n`; a sample of zeros gives no spikes.

    With a ``seed`` the module has its own generator, whose state is copied, pickled and saved in
    the state dict, so that a resumed run sees the same spikes as an uninterrupted run. Without a
    seed it uses torch's global generators. In a worker of a ``DataLoader`` the generator also
    depends on the worker's seed, which torch draws for each worker and epoch.

    Args:
        steps: number of time steps :math:`T`.
        max_rate: rate :math:`r_\text{max}` at intensity 1, in Hz.
        dt: length of a time step :math:`\Delta t`, in ms.
        seed: seed of the module's own generator, or ``None`` to use the global generator.
        norm: the Euclidean norm :math:`n` to which each sample is scaled, or ``None`` to take
            intensities as they are. That of an image of 64 pixels is 8 if all are 1.

    Raises:
        ValueError: if an argument is out of range, or ``max_rate`` is more than one spike per
            step.

    Example:
        >>> import torch
        >>> encoder = PoissonEncoder(steps=100, max_rate=100.0, dt=1.0, seed=0)
        >>> spikes = encoder(torch.rand(4, 8, 8))
        >>> spikes.shape, spikes.dtype
        (torch.Size([100, 4, 8, 8]), torch.bool)
        >>> encoder = PoissonEncoder(steps=1000, max_rate=1000.0, seed=0, norm=1.0)
        >>> encoder(torch.tensor([[3.0, 4.0], [30.0, 40.0]])).float().mean(0).round(decimals=1)
        tensor([[0.6000, 0.8000],
                [0.6000, 0.8000]])
    """

    _shown = ("steps", "max_rate", "dt", "norm")

    def __init__(
        self,
        steps: int,
        max_rate: float,
        dt: float = 1.0,
        seed: int | None = None,
        norm: float | None = None,
    ) -> None:
        super().__init__()
        check_counts("a positive number of time steps", steps=steps)
        check_finite(max_rate=max_rate)
        check_times(0.0, dt, None)
        should = f"a rate in Hz of at most one spike per step, 1000 / dt = {1000 / dt:g}"
        fits = 0 <= max_rate * dt <= 1000
        check_value(fits, "max_rate", max_rate, should, "lower it, or `dt`")
        if norm is not None:
            check_positive("a positive number, or None", norm=norm)
        self.steps, self.max_rate, self.dt, self.norm = steps, max_rate, dt, norm
        self._worker: int | None = None  # the seed of the DataLoader's worker
        self.generator: torch.Generator | None = None
        if seed is not None:
            check_integers(seed=seed)
            self.generator = torch.Generator().manual_seed(seed)

    def forward(self, x: Tensor) -> Tensor:
        """Encodes a batch.

        Args:
            x: intensities, shape ``[B, ...]``, in [0, 1] or, with a ``norm``, not negative.

        Returns:
            Boolean spikes, shape ``[T, B, ...]``.

        Raises:
            ValueError: if an intensity on the CPU lies outside this range, or the ``norm`` is more
                than that of a sample of ones.
        """
        check_tensors(x=x)
        x = x if self.norm is None else _scaled(x, self.norm)
        p = self.max_rate * self.dt / 1000
        return poisson_encode(x, self.steps, p, self._generator_for(x.device))

    def _generator_for(self, device: torch.device) -> torch.Generator | None:
        if self.generator is None:
            return None
        worker = get_worker_info()
        if worker is not None and worker.seed != self._worker:
            # Every worker starts with a copy of the same generator.
            self._worker = worker.seed
            self.generator = torch.Generator().manual_seed(self._draw_seed() ^ worker.seed)
        if device.type == "cpu":
            return self.generator
        # The state stays on the CPU, so that any machine can load it, and seeds each call.
        return torch.Generator(device).manual_seed(self._draw_seed())

    def _draw_seed(self) -> int:
        return int(torch.empty((), dtype=torch.int64).random_(generator=self.generator))

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the state of the generator, for the state dict."""
        return {"generator": None if self.generator is None else self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Takes the state of the generator from a state dict, if it fits."""
        self.check_extra_state(state)
        found = state["generator"]
        self.generator = None if found is None else torch.Generator().set_state(found.cpu())

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        check_state("`PoissonEncoder`", state, {"generator": optional(_GENERATOR)})
