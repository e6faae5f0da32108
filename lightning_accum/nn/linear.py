"""Connections whose parameters take accumulated updates."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from lightning_accum._checks import check_tensors
from lightning_accum._compat import is_traced
from lightning_accum.functional.numbers import as_numbers
from lightning_accum.sparse.costs import events_pay
from lightning_accum.sparse.event_sums import event_matmul
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.handover import publish_events
from lightning_accum.updates import Updatable


@final
class Linear(Updatable, nn.Linear):
    r"""A ``torch.nn.Linear`` that is `Updatable` and takes spikes of any dtype.

    .. math::
        y = x W^\top + b

    The input may have any leading dimensions: a sequence ``[T, B, in_features]`` is one product.
    The state dict has the keys of ``torch.nn.Linear``.

    Args:
        in_features: size of the input.
        out_features: size of the output.
        bias: whether to add a learned bias.
        device: device of the parameters.
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

        If there are few boolean spikes, on a CPU, only the weights of the spikes are summed.

        Args:
            x: input of any dtype, e.g. boolean spikes, shape ``[..., in_features]``.

        Returns:
            Weighted sums, shape ``[..., out_features]``.
        """
        check_tensors(x=x)
        if x.dtype == torch.bool and _supports_events(x, self.weight):
            raster = x.reshape(-1, self.in_features)
            if events_pay(raster, self.out_features):
                events = Events(raster)
                publish_events(x, events)
                out = event_matmul(events, self.weight.t(), self.bias)
                return out.view(*x.shape[:-1], self.out_features)
        if not x.is_floating_point() and not x.is_complex():
            x = as_numbers(x, self.weight.dtype)
        return F.linear(x, self.weight, self.bias)


def _supports_events(x: Tensor, weight: Tensor) -> bool:
    """Returns whether a sum over events may replace the product, as nothing else changes it."""
    return (
        x.is_cpu
        and type(weight) in (Tensor, nn.Parameter)
        and weight.dtype in (torch.float32, torch.float64)
        and x.shape[-1:] == weight.shape[1:]
        and not torch.is_autocast_enabled("cpu")
        and not is_traced()
    )
