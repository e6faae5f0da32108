"""What a rule says of a window: products of both sides' signals, and what is no product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from lightning_accum.engine.signal import Signal

Parts = tuple[Tensor | None, Tensor | None]


def added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """The sum of what there is of two parts."""
    return one if other is None else other if one is None else one + other


@dataclass(frozen=True)
class Term:
    r"""One product of a rule.

    .. math:: \text{rate} \cdot L\left(\sum_t \mathrm{post}_t \otimes \mathrm{pre}_t\right)

    Args:
        rate: factor; its sign says to which part the term goes.
        post: the postsynaptic signal, or a tensor ``[T, B, ...]`` of its shape.
        pre: the presynaptic signal, or a tensor ``[T, B, ...]`` of its shape.
        then: :math:`L`, linear, makes a change of the parameter of the product; the product itself
            when ``None``. A decay multiplies it by the parameter, which stands still in a window.
    """

    rate: float
    post: Signal | Tensor
    pre: Signal | Tensor
    then: Callable[[Tensor], Tensor] | None = None


class Addend(ABC):
    """A change that is no product of two signals.

    Args:
        size: how many samples there are.
    """

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def parts(self, samples: slice) -> Parts:
        """The potentiating and the depressing part, summed over time and some samples.

        Args:
            samples: which of the batch.
        """
