"""Changes, which a rule returns for a window: most are terms, products of two signals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers
from lightning_accum.engine.signal import Activity, Signal
from lightning_accum.engine.state import StateKey
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.dtypes import as_numbers

Parts: TypeAlias = tuple[Tensor | None, Tensor | None]
"""The potentiating and the depressing part of a change; ``None`` for a part that is zero."""


class Change(ABC):
    """A change of a parameter that a rule returns."""

    rate: float
    follows_pieces: ClassVar[bool] = False
    """Whether a piece of a window needs what the piece before carries."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many samples there are."""

    @abstractmethod
    def parts(self, samples: slice, vjp: WeightVJP) -> Parts:
        """Returns both parts of the change, summed over time and over some samples.

        Args:
            samples: the samples of the batch.
            vjp: sums products of both sides into the parameter's shape.
        """

    def summed(self, vjp: WeightVJP) -> Parts:
        """Returns :meth:`parts` of all samples; a subclass may compute them faster."""
        return self.parts(slice(None), vjp)

    def carry(self, vjp: WeightVJP) -> Mapping[StateKey, Tensor]:
        """Returns what passes to the next window, beyond the traces of signals."""
        return {}

    def as_product(self) -> Term | None:
        """Returns this change if it is a product that can be summed together with others."""
        return None


@dataclass(frozen=True)
class Term(Change):
    r"""One product of a rule.

    .. math:: \text{rate} \cdot L\left(\sum_t \mathrm{post}_t \otimes \mathrm{pre}_t\right)

    Args:
        rate: factor; its sign says to which part the term belongs.
        post: the postsynaptic signal, or a tensor ``[T, B, ...]`` of its shape.
        pre: the presynaptic signal, or a tensor ``[T, B, ...]`` of its shape.
        transform: :math:`L`, a linear function of the product; the identity when ``None``. A decay
            multiplies the product by the parameter, which is constant in a window.

    Raises:
        TypeError: if the rate is not a number, or a side is neither a signal nor a tensor.
    """

    rate: float
    post: Signal | Tensor
    pre: Signal | Tensor
    transform: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.rate, Tensor):
            raise TypeError(
                "Argument `rate` of a Term should be a number. Found a tensor of shape"
                f" {list(self.rate.shape)}: for a reward, pass the terms without it to"
                " `reward_modulated(window, terms)`; for another factor, multiply `post` by it, as"
                " a tensor [T, B, ...] in which any dimension may be 1."
            )
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

    @property
    def size(self) -> int:
        """How many samples there are."""
        return self.operands[0].shape[1]

    @cached_property
    def operands(self) -> tuple[Signal, Signal]:
        """The postsynaptic and the presynaptic signal; a tensor becomes a signal."""
        post, pre = self.post, self.pre
        post = post if isinstance(post, Signal) else Signal(Activity(post))
        return post, pre if isinstance(pre, Signal) else Signal(Activity(pre))

    def as_product(self) -> Term | None:
        """Returns this term, unless it has a transform or a constant input."""
        separate = self.transform is not None or self.operands[1].source.constant
        return None if separate else self

    def parts(self, samples: slice, vjp: WeightVJP) -> Parts:
        """Returns the product as the part that the rate's sign selects."""
        operands = self.operands
        dtype = torch.promote_types(operands[0].dtype, operands[1].dtype)
        post, pre = (
            as_numbers(side.values()[:, samples], dtype).flatten(0, 1) for side in operands
        )
        product = vjp.for_constant_input if operands[1].source.constant else vjp
        change = product.sum(post, pre, dtype)
        if self.transform is not None:
            change = self.transform(change)
        change = change.mul_(abs(self.rate))
        return (None, change) if self.rate < 0 else (change, None)


class CustomChange(Change):
    """A change that is not a product of two signals; a subclass computes it in :meth:`parts`.

    Args:
        size: how many samples there are.
    """

    rate = 1.0
    size = 0

    def __init__(self, size: int) -> None:
        self.size = size


def listed(found: object, rule: str) -> Sequence[Change]:
    """Returns the result of a rule's ``terms`` as a sequence; a single change becomes one."""
    if isinstance(found, Change):
        return [found]
    every = list(found) if isinstance(found, Iterable) and not isinstance(found, Tensor) else None
    others = [found] if every is None else [t for t in every if not isinstance(t, Change)]
    if every is None or others:
        other = others[0]
        kind = type(other).__name__
        what = f"a tensor of shape {tuple(other.shape)}" if isinstance(other, Tensor) else kind
        raise TypeError(
            f"`{rule}.terms` should return Terms, such as `[Term(h.lr, window.post, window.pre)]`."
            f" Found {what}: return the rate and both sides of every product, and the engine sums"
            " them; or return a CustomChange for a change that is not a product."
        )
    return every


def check_sides(rule: str, changes: Sequence[Change]) -> None:
    """Checks that both sides of products have one time and batch, and are not exchanged."""
    for term in (change for change in changes if isinstance(change, Term)):
        post, pre = term.operands
        if (post.source.side, pre.source.side) == ("pre", "post"):
            raise ValueError(
                f"A Term of `{rule}` should have the postsynaptic signal before the presynaptic"
                " one. Found `window.pre` and `window.post` exchanged: return"
                " `Term(rate, post, pre)`."
            )
        if post.shape[:2] != pre.shape[:2]:
            raise ValueError(
                f"Both sides of a Term of `{rule}` should be [T, B, ...], with the same T and B."
                f" Found {tuple(post.shape)} for `post` and {tuple(pre.shape)} for `pre`: keep the"
                " dimensions of time and batch, as in `x.mean(0, keepdim=True).expand(x.shape)`."
            )


def added(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    """Returns the sum of two parts, either of which may be ``None``."""
    return one if other is None else other if one is None else one + other
