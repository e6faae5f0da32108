"""The change that a kernel makes of nearest pairs of spikes, synapse by synapse."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.engine.signal import Signal
from lightning_accum.engine.terms import CustomChange, Parts
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.engine.vjp.matrix import Outer
from lightning_accum.rules.kernel import Kernel, changes
from lightning_accum.sparse.events import Events

_CHUNK_ELEMENTS = 1 << 20


class Synapses(Outer):
    """Sums outer products into a matrix that has an entry for each synapse, as delays do."""

    def check(self, post: Tensor, pre: Tensor) -> None:
        """Raises a ``ValueError`` if the shape is not ``[out, in]``.

        The connection is not run, because one with delays keeps past inputs.
        """
        param: Tensor = getattr(self.module, self.name)
        expected = (post.shape[-1], pre.shape[-1])
        if tuple(param.shape) != expected:
            raise ValueError(
                f"Parameter {self.place} should have an entry for each synapse, shape"
                f" {list(expected)}. Found {list(param.shape)}."
            )


class SpikePairs(CustomChange):
    """Sums a kernel over nearest pairs of spikes: every spike visits all synapses of its neuron.

    Args:
        kernel: returns the change for time differences, post minus pre minus delay, in ms.
        post: postsynaptic spikes, ``[T, B, ..., out]``.
        pre: presynaptic spikes, ``[T, B, ..., in]``.
        delay: the delay of each synapse, in ms, ``[out, in]``.
    """

    def __init__(self, kernel: Kernel, post: Signal, pre: Signal, delay: Tensor) -> None:
        super().__init__(post.activity.shape[1])
        self.kernel = kernel
        self.post = post
        self.pre = pre
        self.delay = delay

    def parts(self, samples: slice, vjp: WeightVJP) -> Parts:
        """Returns the change by the spikes of both sides; two spikes in one step are one pair."""
        sides = [
            [_rows(values, samples) for values in (side.activity != 0, side.age())]
            for side in (self.post, self.pre)
        ]
        (posts, post_age), (pres, pre_age) = sides
        delay = self.delay.to(post_age.dtype)
        up, down = torch.zeros_like(delay), torch.zeros_like(delay)
        self._visit(posts, pre_age, delay, 1.0, up, down)
        earlier = post_age.masked_fill(post_age == 0, torch.inf)
        self._visit(pres, earlier, delay.T, -1.0, up.T, down.T)
        return up, down

    def _visit(
        self, spikes: Tensor, age: Tensor, delay: Tensor, sign: float, up: Tensor, down: Tensor
    ) -> None:
        """Adds, for every spike, the kernel of the ages of the other side's latest spikes."""
        events = Events(spikes)
        chunk = max(1, _CHUNK_ELEMENTS // max(1, age.shape[1]))
        for rows, columns in zip(
            events.rows.split(chunk), events.columns.split(chunk), strict=True
        ):
            change = changes(self.kernel, sign * age[rows] - delay[columns])
            up.index_add_(0, columns, change.clamp(min=0))
            down.index_add_(0, columns, change.neg_().clamp_(min=0))


def _rows(values: Tensor, samples: slice) -> Tensor:
    """Returns ``[T, B, ..., N]`` of some samples as ``[K, N]``."""
    return values[:, samples].flatten(0, -2)
