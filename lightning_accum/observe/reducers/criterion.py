"""Criteria, which find the events in an observation."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Criterion = Callable[[Tensor], Tensor]


def nonzero(observation: Tensor) -> Tensor:
    """Finds the spikes, which are the elements that are not zero."""
    return observation != 0


def find_events(criterion: Criterion, observation: Tensor) -> Tensor:
    """Returns booleans that are true at the events.

    Args:
        criterion: finds the events in observations ``[...]``, as booleans ``[...]``.
        observation: ``[...]`` the observation.

    Raises:
        TypeError: if the criterion does not return booleans.
    """
    found = criterion(observation)
    if not isinstance(found, Tensor) or found.dtype != torch.bool:
        kind = found.dtype if isinstance(found, Tensor) else type(found).__name__
        raise TypeError(
            "Argument `criterion` should return booleans of the observation's shape. Found"
            f" `{kind}`: compare with a threshold."
        )
    return found
