"""Convolutions whose parameters take accumulated updates, over whole sequences at once."""

from __future__ import annotations

from typing import Any, final

from torch import Tensor, nn

from lightning_accum.functional.numbers import as_numbers
from lightning_accum.updates import Updatable


class _OverSequences(Updatable):
    """A convolution with any number of dimensions before its channels, and input of any dtype."""

    weight: Tensor
    bias: Tensor | None
    _conv_forward: Any

    def forward(self, x: Tensor) -> Tensor:
        """Transmits a batch, or a sequence of them.

        Args:
            x: input of any dtype, e.g. boolean spikes, shape ``[B, C, ...]``, or
                ``[T, B, C, ...]``.

        Returns:
            Weighted sums, with the same dimensions before the channels.
        """
        inner = self.weight.ndim - 1
        if not x.is_floating_point() and not x.is_complex():
            x = as_numbers(x, self.weight.dtype)
        flat = x.reshape(-1, *x.shape[-inner:])
        out: Tensor = self._conv_forward(flat, self.weight, self.bias)
        return out.reshape(*x.shape[:-inner], *out.shape[1:])


@final
class Conv1d(_OverSequences, nn.Conv1d):
    """A ``torch.nn.Conv1d`` that is `Updatable`, and takes whole sequences and spikes of any dtype.

    Args:
        *args: those of ``torch.nn.Conv1d``.
        **kwargs: those of ``torch.nn.Conv1d``.

    Example:
        >>> import torch
        >>> Conv1d(2, 3, kernel_size=3)(torch.rand(7, 4, 2, 10) < 0.1).shape
        torch.Size([7, 4, 3, 8])
    """


@final
class Conv2d(_OverSequences, nn.Conv2d):
    """A ``torch.nn.Conv2d`` that is `Updatable`, and takes whole sequences and spikes of any dtype.

    Args:
        *args: those of ``torch.nn.Conv2d``.
        **kwargs: those of ``torch.nn.Conv2d``.

    Example:
        >>> import torch
        >>> Conv2d(1, 3, kernel_size=5)(torch.rand(7, 4, 1, 8, 8) < 0.1).shape
        torch.Size([7, 4, 3, 4, 4])
    """


@final
class Conv3d(_OverSequences, nn.Conv3d):
    """A ``torch.nn.Conv3d`` that is `Updatable`, and takes whole sequences and spikes of any dtype.

    Args:
        *args: those of ``torch.nn.Conv3d``.
        **kwargs: those of ``torch.nn.Conv3d``.

    Example:
        >>> import torch
        >>> Conv3d(1, 2, kernel_size=2)(torch.rand(7, 4, 1, 3, 3, 3) < 0.1).shape
        torch.Size([7, 4, 2, 2, 2, 2])
    """
