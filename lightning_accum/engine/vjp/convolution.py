"""The vector-Jacobian product of a convolution's kernel."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import grad

from lightning_accum.engine.vjp.base import WeightVJP
from lightning_accum.engine.vjp.bias import Bias
from lightning_accum.engine.vjp.jacobian import Jacobian

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_WEIGHT_GRADIENTS = {1: grad.conv1d_weight, 2: grad.conv2d_weight, 3: grad.conv3d_weight}


class Convolution(WeightVJP):
    """Computes the weight gradient of a convolution, with its stride, dilation and groups."""

    @property
    def for_constant_input(self) -> WeightVJP:
        """Returns the product that treats all entries of a channel's kernel alike."""
        return _ConstantInput(self.module, self.name, self.place)

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns ``[out, in / groups, ...]`` of ``[K, out, ...]`` and ``[K, in, ...]``."""
        conv = self.module
        assert isinstance(conv, CONVOLUTIONS)
        gradient: Any = _WEIGHT_GRADIENTS[conv.weight.ndim - 2]
        product: Tensor = gradient(
            pre, conv.weight.shape, post, conv.stride, conv.padding, conv.dilation, conv.groups
        )
        return product


class PaddedConvolution(Jacobian):
    """Differentiates a convolution whose padding is named, or is not zeros."""

    @property
    def for_constant_input(self) -> WeightVJP:
        """Returns the product that treats all entries of a channel's kernel alike."""
        return _ConstantInput(self.module, self.name, self.place)


class _ConstantInput(Bias):
    """Sums activity for an input that is one at padded places too, the same for all entries."""

    def vjp(self, post: Tensor, pre: Tensor) -> Tensor:
        """Returns ``[out, 1, ...]`` of ``[K, out, ...]``."""
        param: Tensor = getattr(self.module, self.name)
        return super().vjp(post, pre).reshape(-1, *[1] * (param.ndim - 1))
