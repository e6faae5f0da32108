"""The Poisson encoder, which turns intensities into spikes."""

from typing import Any

import torch
from torch import Tensor
from torch.utils.data import get_worker_info

from lightning_accum._checks import check_finite, check_integers, check_tensors, check_value
from lightning_accum._state import CheckedState, Kind, check_state, optional
from lightning_accum.functional.spikes import poisson_encode
from lightning_accum.nn._arguments import check_times


def _is_generator(state: Any) -> bool:
    """Returns whether a generator takes a state."""
    try:
        torch.Generator().set_state(state.cpu())
    except (AttributeError, RuntimeError, TypeError, NotImplementedError):
        return False
    return True


_GENERATOR = Kind("the state of a torch.Generator of the CPU", _is_generator)


class PoissonEncoder(CheckedState):
    r"""Turns intensities into Poisson spike trains of a given rate.

    .. math::
        s_t \sim \text{Bernoulli}\left(x \cdot r_\text{max} \frac{\Delta t}{1000}\right)

    With a ``seed`` the module has its own generator, whose state is copied, pickled and saved in
    the state dict, so that a resumed run sees the same spikes as an uninterrupted run. Without a
    seed it uses torch's global generators. In a worker of a ``DataLoader`` the generator also
    depends on the worker's seed, which torch draws for each worker and epoch.

    Args:
        steps: number of time steps :math:`T`.
        max_rate: rate :math:`r_\text{max}` at intensity 1, in Hz.
        dt: length of a time step :math:`\Delta t`, in ms.
        seed: seed of the module's own generator, or ``None`` to use the global generator.

    Raises:
        ValueError: if an argument is out of range, or ``max_rate`` is more than one spike per
            step.

    Example:
        >>> import torch
        >>> encoder = PoissonEncoder(steps=100, max_rate=100.0, dt=1.0, seed=0)
        >>> spikes = encoder(torch.rand(4, 8, 8))
        >>> spikes.shape, spikes.dtype
        (torch.Size([100, 4, 8, 8]), torch.bool)
    """

    _shown = ("steps", "max_rate", "dt")

    def __init__(
        self, steps: int, max_rate: float, dt: float = 1.0, seed: int | None = None
    ) -> None:
        super().__init__()
        check_integers(steps=steps)
        check_finite(max_rate=max_rate)
        check_times(0.0, dt, None)
        check_value(steps > 0, "steps", steps, "a positive number of time steps")
        should = f"a rate in Hz of at most one spike per step, 1000 / dt = {1000 / dt:g}"
        fits = 0 <= max_rate * dt <= 1000
        check_value(fits, "max_rate", max_rate, should, "lower it, or `dt`")
        self.steps, self.max_rate, self.dt = steps, max_rate, dt
        self._worker: int | None = None  # the seed of the DataLoader's worker
        self.generator: torch.Generator | None = None
        if seed is not None:
            check_integers(seed=seed)
            self.generator = torch.Generator().manual_seed(seed)

    def forward(self, x: Tensor) -> Tensor:
        """Encodes a batch.

        Args:
            x: intensities in [0, 1], shape ``[B, ...]``.

        Returns:
            Boolean spikes, shape ``[T, B, ...]``.

        Raises:
            ValueError: if an intensity on the CPU lies outside [0, 1].
        """
        check_tensors(x=x)
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
