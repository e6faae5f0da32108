"""The outer product: the vector-Jacobian product of a matrix."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.engine.vjp.base import WeightVJP


class Outer(WeightVJP):
    """Sums outer products into a matrix ``[out, in]``, over all dimensions but the last."""

    is_matrix = True

    def constant_input(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns a single input, whose column of the product stands for all columns."""
        return post.new_ones(()).expand(*post.shape[:-1], 1)

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns ``[out, in]`` of ``[K, ..., out]`` and ``[K, ..., in]``."""
        return post.flatten(0, -2).T @ pre.flatten(0, -2)
