"""Convolutions whose parameters take accumulated updates, over whole sequences at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, final

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_tensors
from lightning_accum._compat import is_traced
from lightning_accum.functional.numbers import as_numbers
from lightning_accum.updates import Updatable

# Elements at a time of the side with more channels: they stay in cache, in memory used again.
_CHUNK_ELEMENTS = 1 << 19


def _is_followed(*tensors: Tensor) -> bool:
    """Whether gradients will be asked for, for which all has to be kept anyway."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def _in_turn(call: Callable[[Tensor], Tensor], x: Tensor, rows: int) -> Tensor:
    """What ``call`` gives for ``[K, ...]``, so many rows at a time."""
    first, *others = x.split(rows)
    part = call(first)
    out = part.new_empty(len(x), *part.shape[1:])
    out[:rows] = part
    for i, rest in enumerate(others, 1):
        out[i * rows : (i + 1) * rows] = call(rest)
    return out


class _OverSequences(Updatable):
    """A convolution with any number of dimensions before its channels, and input of any dtype."""

    weight: Tensor
    bias: Tensor | None
    parameters: Any
    _conv_forward: Any

    def forward(self, x: Tensor) -> Tensor:
        """Transmits a batch, or a sequence of them.

        Where no gradient is followed (``requires_grad_(False)``), long sequences go through in
        pieces that stay in cache.

        Args:
            x: input of any dtype, e.g. boolean spikes, shape ``[B, C, ...]``, or
                ``[T, B, C, ...]``.

        Returns:
            Weighted sums, with the same dimensions before the channels.
        """
        check_tensors(x=x)
        inner = self.weight.ndim - 1
        flat = x.reshape(-1, *x.shape[-inner:])
        channels = max(flat.shape[1], self.weight.shape[0]) if flat.ndim > 1 else 1
        rows = max(1, _CHUNK_ELEMENTS // max(1, channels * math.prod(flat.shape[2:])))
        whole = is_traced() or not x.is_cpu or _is_followed(x, *self.parameters())
        short = whole or len(flat) <= rows
        out = self._whole(flat) if short else _in_turn(self._whole, flat, rows)
        return out.reshape(*x.shape[:-inner], *out.shape[1:])

    def _whole(self, x: Tensor) -> Tensor:
        if not x.is_floating_point() and not x.is_complex():
            x = as_numbers(x, self.weight.dtype)
        out: Tensor = self._conv_forward(x, self.weight, self.bias)
        return out


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
