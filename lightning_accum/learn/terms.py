"""What a rule says of a window: products of both sides' signals, and what is no product."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.learn.signal import Signal

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

    Raises:
        TypeError: if the rate is not a number, or a side is neither signal nor tensor.
    """

    rate: float
    post: Signal | Tensor
    pre: Signal | Tensor
    then: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if type(self.rate) is not float:
            check_numbers(rate=self.rate)
        for name, side in (("post", self.post), ("pre", self.pre)):
            if not isinstance(side, (Signal, Tensor)):
                found = side if isinstance(side, (int, float)) else type(side).__name__
                constant = (
                    "window.one" if name == "pre" else "torch.ones_like(window.post.values())"
                )
                raise TypeError(
                    f"Argument `{name}` of a Term should be a signal of the window, such as"
                    f" `window.{name}`, or a tensor [T, B, ...] of its shape. Found `{found}`: for"
                    f" a constant, give `{constant}` and multiply `rate`."
                )


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


def listed(found: object, giver: str) -> Sequence[Term | Addend]:
    """What a rule returned, as a sequence; a single term or addend may come alone.

    Args:
        found: what ``terms`` returned.
        giver: name of the rule, for the message.

    Raises:
        TypeError: if it is something else than terms and addends.
    """
    if isinstance(found, (Term, Addend)):
        return [found]
    every = list(found) if isinstance(found, Iterable) and not isinstance(found, Tensor) else None
    others = [found] if every is None else [t for t in every if not isinstance(t, (Term, Addend))]
    if every is None or others:
        other = others[0]
        kind = type(other).__name__
        what = f"a tensor of shape {tuple(other.shape)}" if isinstance(other, Tensor) else kind
        raise TypeError(
            f"`{giver}.terms` should return Terms, such as `[Term(h.lr, window.post, window.pre)]`."
            f" Found {what}: give rate and both sides of every product, which is summed for you, or"
            " an Addend for a change that is not a product."
        )
    return every
