"""What a rule sees of one cell and one parameter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from lightning_accum.learn.geometry import Geometry
from lightning_accum.learn.signal import Signal, Source


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
        """As ``pre``, of an input that is always one: for what does not depend on the input."""
        ones = self.geometry.one(self.post.activity, self.pre.activity)
        source = self.post.source
        return Signal(Source(ones, self.dt, {}, "one", source.dtype, source.unit_dim))

    @property
    def steps(self) -> slice:
        """Which steps of the whole window these are."""
        return slice(self.start, self.start + self.post.activity.shape[0])
