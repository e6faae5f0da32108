"""The vector-Jacobian product of a bias, whose input is constant."""

from __future__ import annotations

from torch import Tensor, nn

from lightning_accum.engine.vjp.base import WeightVJP


class Bias(WeightVJP):
    """Sums activity into a bias, the weight of an input ``[K, 1, ...]`` that is always one."""

    reads_input = False

    def constant_input(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns a single one for each step and sample."""
        return post.new_ones(*post.shape[:2], *[1] * (post.ndim - 2))

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns ``[out]`` of ``[K, ..., out]``, or of a convolution's ``[K, out, ...]``."""
        channel = -1 if isinstance(self.module, nn.Linear) else 1
        product = (post * pre).movedim(channel, -1)
        return product.flatten(0, -2).sum(0)
