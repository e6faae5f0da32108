"""What a rule sees of one cell and one parameter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightning_accum.engine.signal import Signal
from lightning_accum.engine.source import Source
from lightning_accum.engine.state import Carried
from lightning_accum.engine.terms import Term
from lightning_accum.engine.vjp import WeightVJP


@dataclass(frozen=True)
class Window:
    """What a rule sees of one cell and one parameter since its last call, or of a piece of it.

    Args:
        pre: presynaptic signal, ``[T, B, ..., in]``; for a bias, what is always one.
        post: postsynaptic signal, ``[T, B, ..., out]``.
        name: the parameter's name.
        param: the parameter, which is constant in a window.
        dt: step, in ms.
        inputs: what the caller of the rule passed along, such as a reward, by name.
        start: the first step of this piece in the whole window.
        total: steps of the whole window.
        vjp: makes a change of the parameter of a product of both sides.
        tensors: other tensors of the connection that the rule named in ``reads``.
        carried: what the window before left.
    """

    pre: Signal
    post: Signal
    name: str
    param: Tensor
    dt: float
    inputs: dict[str, Any]
    start: int
    total: int
    vjp: WeightVJP
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    carried: Carried = field(default_factory=dict)

    @property
    def one(self) -> Signal:
        """As ``pre``, of an input that is always one: for what does not depend on the input.

        It reaches every weight, on a padded convolution those at the border of the kernel too.
        """
        ones = self.vjp.for_constant_input.constant_input(self.post.activity, self.pre.activity)
        dtype, unit_dim = self.post.dtype, self.post.unit_dim
        return Signal(Source(ones, self.dt, dtype=dtype, unit_dim=unit_dim, constant=True))

    def decay(self, rate: float, post: Signal | Tensor) -> Term:
        """What changes the parameter in proportion to itself, as postsynaptic activity says.

        Args:
            rate: factor; negative to decay.
            post: ``[T, B, ..., out]``, how much in each step.
        """
        return Term(rate, post, self.one, transform=partial(torch.mul, self.param))

    @property
    def steps(self) -> slice:
        """Which steps of the whole window these are."""
        return slice(self.start, self.start + self.post.activity.shape[0])
