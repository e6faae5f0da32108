"""Reads the constants of other libraries' neurons."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Constants(NamedTuple):
    """The constants with which a neuron of another library computes.

    Args:
        decays: the smallest and the largest decay of the potential in one step.
        thresholds: the smallest and the largest threshold.
    """

    decays: tuple[float, float] | None
    thresholds: tuple[float, float] | None

    def tc_mem(self, dt: float) -> tuple[float, float] | None:
        r"""Returns the smallest and the largest time constant that describe the decays, in ms.

        For a decay :math:`\alpha` in one step, that of an exponential,
        :math:`-\Delta t / \ln \alpha`, and that of the Euler method,
        :math:`\Delta t / (1 - \alpha)`.

        Args:
            dt: the step, in ms.
        """
        if self.decays is None or not 0 < self.decays[0] <= self.decays[1] < 1:
            return None
        return -dt / math.log(self.decays[0]), dt / (1.0 - self.decays[1])


def library_constants(neuron: nn.Module) -> Constants | None:
    """Returns the constants of a neuron of snnTorch, SpikingJelly or Norse; may wait for a device.

    Args:
        neuron: the neuron.

    Returns:
        ``None`` for other neurons.
    """
    libraries = {kind.__module__.partition(".")[0] for kind in type(neuron).__mro__}
    for library, (decay, threshold) in _LIBRARIES.items():
        if library in libraries:
            return Constants(_range(decay, neuron), _range(threshold, neuron))
    return None


def _decay_of_norse(neuron: Any) -> Any:
    return 1.0 - neuron.dt * neuron.p.tau_mem_inv


def _has_decay(neuron: nn.Module, *kinds: str) -> bool:
    return any(kind.__name__ in kinds for kind in type(neuron).__mro__)


def _decay_of_snntorch(neuron: Any) -> Any:
    return neuron.beta if _has_decay(neuron, "Leaky", "RLeaky", "Synaptic", "RSynaptic") else None


def _decay_of_spikingjelly(neuron: Any) -> Any:
    return 1.0 - 1.0 / neuron.tau if _has_decay(neuron, "LIFNode") else None


_LIBRARIES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "snntorch": (_decay_of_snntorch, lambda neuron: neuron.threshold),
    "spikingjelly": (_decay_of_spikingjelly, lambda neuron: neuron.v_threshold),
    "norse": (_decay_of_norse, lambda neuron: neuron.p.v_th),
}


def _range(read: Callable[[Any], Any], neuron: nn.Module) -> tuple[float, float] | None:
    """Returns the smallest and the largest value of a constant, ``None`` if there is none."""
    try:
        value = read(neuron)
    except (AttributeError, TypeError, ZeroDivisionError):
        return None
    if isinstance(value, Tensor) and value.numel() and not value.is_meta:
        low, high = torch.stack(value.detach().aminmax()).tolist()
        return low, high
    return (float(value), float(value)) if isinstance(value, (int, float)) else None
