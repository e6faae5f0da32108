"""Feedback that does not change: the error itself, and random weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_integers
from lightning_accum.rules.feedback.base import Feedback


@final
class DirectFeedback(Feedback):
    """Takes the error as the learning signal: it has an entry for each neuron already.

    Example:
        >>> import torch
        >>> DirectFeedback()(torch.tensor([[0.5, -1.0]]))
        tensor([[ 0.5000, -1.0000]])
    """

    def matrix(self) -> None:
        """Returns ``None``: there are no feedback weights."""


@final
class RandomFeedback(Feedback):
    r"""Fixed random weights: broadcast alignment.

    :math:`B_{kj}` is normal with standard deviation ``scale``. It is a buffer: it is saved with the
    rule, and the same in all processes.

    Args:
        classes: number of outputs.
        neurons: number of neurons, or their shape.
        scale: standard deviation; :math:`1/\sqrt{\text{neurons}}` when ``None``.
        seed: seed of the random numbers; the global generator is not used.

    Raises:
        ValueError: if a number or the scale is not positive.

    Example:
        >>> import torch
        >>> feedback = RandomFeedback(10, 100)
        >>> feedback(torch.randn(5, 10)).shape
        torch.Size([5, 100])

    Source:
        Lillicrap et al. 2016, doi:10.1038/ncomms13276; for each neuron of every layer directly:
        Nøkland 2016, arXiv:1609.01596.
    """

    weight: Tensor

    def __init__(
        self,
        classes: int,
        neurons: int | Sequence[int],
        scale: float | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        shape = (neurons,) if isinstance(neurons, int) else tuple(neurons)
        check_integers(
            classes=classes, seed=seed, **{f"neurons[{i}]": n for i, n in enumerate(shape)}
        )
        size = math.prod(shape)
        if classes < 1 or size < 1:
            raise ValueError(
                "Arguments `classes` and `neurons` should be positive numbers. Found"
                f" `{classes = }`, `{neurons = }`."
            )
        scale = size**-0.5 if scale is None else scale
        check_finite(scale=scale)
        if not scale > 0:
            raise ValueError(f"Argument `scale` should be a positive number. Found `{scale = }`.")
        generator = torch.Generator().manual_seed(seed)
        self.register_buffer("weight", torch.randn(classes, size, generator=generator) * scale)

    def matrix(self) -> Tensor:
        """Returns the fixed weights ``[classes, neurons]``."""
        return self.weight
