"""Changes, which a rule returns: most are terms, products of two signals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.state_keys import StateKey
from lightning_accum.functional.bounds import Room

Parts: TypeAlias = tuple[Tensor | None, Tensor | None]
"""The potentiating and the depressing part of a change; ``None`` for a part that is zero."""


class Change(ABC):
    """A change of a parameter that a rule returns."""

    rate: float
    follows_pieces: ClassVar[bool] = False
    """Whether a piece of a window needs what the piece before carries."""

    @property
    def is_named(self) -> bool:
        """Whether it reads no data."""
        return False

    @property
    def signals(self) -> set[str]:
        """The names of the signals that it reads."""
        return {"pre", "post"}

    def expand(self, window: Any) -> Sequence[Change]:
        """Returns what this stands for in a window with data."""
        return (self,)


@dataclass(frozen=True)
class Term(Change):
    r"""One product of a rule.

    .. math:: \text{rate} \cdot L\left(\sum_t \mathrm{post}_t \otimes \mathrm{pre}_t\right)

    Args:
        rate: factor; its sign says to which part the term belongs.
        post: the postsynaptic signal, or a tensor ``[T, B, ...]`` of its shape.
        pre: the presynaptic signal, or a tensor ``[T, B, ...]`` of its shape.
        transform: :math:`L`, a linear function of the product; the identity when ``None``.
        room: multiplies the product by the room between the parameter, as it is at the beginning of
            the window, and a limit: an upper one if the rate is positive, otherwise a lower one.

    Raises:
        TypeError: if the rate is not a number, or a side is neither a signal nor a tensor.
    """

    rate: float
    post: Signal | Tensor
    pre: Signal | Tensor
    transform: Callable[[Tensor], Tensor] | None = None
    room: Room | None = None

    def __post_init__(self) -> None:
        if type(self.rate) is not float and not isinstance(self.rate, Tensor):
            check_numbers(rate=self.rate)
        for name, side in (("post", self.post), ("pre", self.pre)):
            if not isinstance(side, (Signal, Tensor)):
                found = side if isinstance(side, (int, float)) else type(side).__name__
                raise TypeError(
                    f"Argument `{name}` of a Term should be a signal of the window, such as"
                    f" `window.{name}`, or a tensor [T, B, ...] of its shape. Found `{found}`: for"
                    " a constant, give"
                    f" `{'window.one' if name == 'pre' else 'window.post.ones()'}` and multiply"
                    " `rate`."
                )

    @property
    def is_named(self) -> bool:
        """Whether both sides are signals without data."""
        sides = self.post, self.pre
        return all(isinstance(side, Signal) and side.is_named for side in sides)

    @property
    def signals(self) -> set[str]:
        """The names of the signals of both sides."""
        sides = [side for side in (self.post, self.pre) if isinstance(side, Signal)]
        weights = [side.weights for side in sides if isinstance(side.weights, Signal)]
        return {side.source.side for side in (*sides, *weights)}

    @property
    def is_pair(self) -> bool:
        """Whether it is a product of the activity of both sides, or of traces of these."""
        sides = [side for side in (self.post, self.pre) if isinstance(side, Signal)]
        plain = all(each.weights is None and not each.shifted for each in sides)
        plain = plain and self.transform is None and self.room is None
        return plain and [each.source.side for each in sides] == ["post", "pre"]


class CustomChange(Change):
    """A change that is not a product of two signals; a subclass computes it in :meth:`parts`.

    Args:
        size: how many samples there are, by which a mean divides.
    """

    rate = 1.0

    def __init__(self, size: int) -> None:
        self.size = size

    @abstractmethod
    def parts(self, samples: slice, vjp: Any) -> Parts:
        """Returns both parts of the change, not negative, summed over time and over some samples.

        Args:
            samples: the samples of the batch.
            vjp: sums products of both sides into the parameter's shape.
        """

    def summed(self, vjp: Any) -> Parts:
        """Returns :meth:`parts` of all samples; a subclass may compute them faster."""
        return self.parts(slice(None), vjp)

    def carry(self, vjp: Any) -> Mapping[StateKey, Tensor]:
        """Returns what passes to the next window, as ``window.carried``, in addition to traces."""
        return {}


def listed(found: Any, rule: str, numbers: bool = True) -> Sequence[Change]:
    """Returns the result of a rule's ``terms`` as a sequence; rates may have to be numbers."""
    several = isinstance(found, Iterable) and not isinstance(found, (Change, Tensor))
    every: list[Any] = [*found] if several else [found]
    for other in [each for each in every if not isinstance(each, Change)]:
        kind = type(other).__name__
        what = f"a tensor of shape {tuple(other.shape)}" if isinstance(other, Tensor) else kind
        raise TypeError(
            f"`{rule}.terms` should return Terms, such as `[Term(self.lr, window.post,"
            f" window.pre)]`. Found {what}: return the rate and both sides of every product, and"
            " the engine sums them; or return a CustomChange for a change that is not a product."
        )
    for rate in (each.rate for each in every if numbers and isinstance(each.rate, Tensor)):
        raise TypeError(
            f"Argument `rate` of a Term should be a number. Found a tensor of shape"
            f" {list(rate.shape)}: for a reward, pass the terms without it to"
            " `reward_modulated(window, terms)`; for another factor, multiply `post` by it, as"
            " a tensor [T, B, ...] in which any dimension may be 1."
        )
    return every


def added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Returns the sum of two parts, either of which may be ``None``."""
    return one if other is None else other if one is None else one + other
