"""What a rule sees of one cell and one parameter."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightning_accum.learn.geometry import Geometry
from lightning_accum.learn.signal import Signal, Source
from lightning_accum.learn.terms import Term


@dataclass(frozen=True)
class Memory:
    """What passes from window to window, by key.

    Args:
        before: what the last window left.
        after: what this window leaves; ``None`` where nothing of a sample is carried.
    """

    before: dict[str, Tensor | None] = field(default_factory=dict)
    after: dict[str, Tensor | None] | None = None


@dataclass(frozen=True)
class Window:
    """What a rule sees of one cell and one parameter since its last call, or of a piece of it.

    Args:
        pre: presynaptic signal, ``[T, B, ..., in]``; for a bias, what is always one.
        post: postsynaptic signal, ``[T, B, ..., out]``.
        param: the parameter, which stands still.
        dt: step, in ms.
        given: what the caller of the rule passed along, such as a reward, by name.
        start: the first step of this piece in the whole window.
        total: steps of the whole window.
        geometry: how products become a change of the parameter.
        memory: what passes from window to window.
    """

    pre: Signal
    post: Signal
    param: Tensor
    dt: float
    given: dict[str, Any]
    start: int
    total: int
    geometry: Geometry
    memory: Memory

    @property
    def one(self) -> Signal:
        """As ``pre``, of an input that is always one: for what does not depend on the input.

        It reaches every weight: on a convolution, those at the rim of the kernel too.
        """
        ones = self.geometry.constant.one(self.post.activity, self.pre.activity)
        source = self.post.source
        return Signal(Source(ones, self.dt, {}, "one", source.dtype, source.unit_dim))

    def decay(self, rate: float, post: Signal | Tensor) -> Term:
        """What changes the parameter in proportion to itself, as postsynaptic activity says.

        Args:
            rate: factor; negative to decay.
            post: ``[T, B, ..., out]``, how much in each step.
        """
        return Term(rate, post, self.one, then=partial(torch.mul, self.param))

    @property
    def steps(self) -> slice:
        """Which steps of the whole window these are."""
        return slice(self.start, self.start + self.post.activity.shape[0])
