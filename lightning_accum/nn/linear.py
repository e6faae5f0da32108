"""Connections whose parameters take accumulated updates."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn
from torch.nn import functional as F

from lightning_accum.updates import Updatable


@final
class Linear(Updatable, nn.Linear):
    r"""A ``torch.nn.Linear`` that is `Updatable`, and takes spikes of any dtype.

    .. math::
        y = x W^\top + b

    Leading dimensions are free: a whole sequence ``[T, B, in_features]`` is one product. The state
    dict has the keys of ``torch.nn.Linear``.

    Args:
        in_features: size of the input.
        out_features: size of the output.
        bias: whether to add a learned bias.
        device: where the parameters are made.
        dtype: dtype of the parameters.

    Example:
        >>> import torch
        >>> connection = Linear(64, 10, bias=False)
        >>> spikes = torch.rand(100, 32, 64) < 0.1
        >>> connection(spikes).shape
        torch.Size([100, 32, 10])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Transmits a batch.

        Args:
            x: input of any dtype, e.g. boolean spikes, shape ``[..., in_features]``.

        Returns:
            Weighted sums, shape ``[..., out_features]``.
        """
        if not x.is_floating_point() and not x.is_complex():
            x = x.to(self.weight.dtype)
        return F.linear(x, self.weight, self.bias)
