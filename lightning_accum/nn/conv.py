"""Convolutions whose parameters take accumulated updates, and that take whole sequences."""

import math
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_tensors
from lightning_accum._compat.torch_internals import is_traced
from lightning_accum.functional.dtypes import as_numbers
from lightning_accum.updates import Updatable

# How many elements a chunk has, of the argument or of the result, whichever has more.
_CHUNK = 1 << 19


class SequenceConv(Updatable, nn.Module):
    """The part of a convolution that takes any dtype and time; torch's follows as another base."""

    weight: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Transmits a batch, or a sequence of batches.

        Args:
            x: input of any dtype, e.g. boolean spikes, shape ``[B, C, ...]``, or
                ``[T, B, C, ...]``.

        Returns:
            Weighted sums, with the same dimensions before the channels.
        """
        check_tensors(x=x)
        inner = self.weight.ndim - 1
        flat = x.reshape(-1, *x.shape[-inner:])
        grads = any(tensor.requires_grad for tensor in (x, *self.parameters()))
        if is_traced() or not x.is_cpu or (grads and torch.is_grad_enabled()):
            out = self._transmit(flat)
        else:
            channels = max(flat.shape[1], self.weight.shape[0]) if flat.ndim > 1 else 1
            out = _in_chunks(self._transmit, flat, channels * math.prod(flat.shape[2:]))
        return out.reshape(*x.shape[:-inner], *out.shape[1:])

    def _transmit(self, x: Tensor) -> Tensor:
        if not x.is_floating_point() and not x.is_complex():
            x = as_numbers(x, self.weight.dtype)
        out: Tensor = super().forward(x)
        return out


def _in_chunks(call: Callable[[Tensor], Tensor], x: Tensor, row_elements: int) -> Tensor:
    """Returns ``call(x)`` of a function of rows, in chunks that stay in the cache between steps."""
    rows = max(1, _CHUNK // max(1, row_elements))
    if len(x) <= rows:
        return call(x)
    first, *others = x.split(rows)
    part = call(first)
    out = part.new_empty(len(x), *part.shape[1:])
    out[:rows] = part
    for i, chunk in enumerate(others, 1):
        out[i * rows : (i + 1) * rows] = call(chunk)
    return out


@final
class Conv1d(SequenceConv, nn.Conv1d):
    """A ``torch.nn.Conv1d`` that is `Updatable` and takes sequences and spikes of any dtype.

    Args:
        *args: arguments of ``torch.nn.Conv1d``.
        **kwargs: keyword arguments of ``torch.nn.Conv1d``.

    Example:
        >>> import torch
        >>> Conv1d(2, 3, kernel_size=3)(torch.rand(7, 4, 2, 10) < 0.1).shape
        torch.Size([7, 4, 3, 8])
    """


@final
class Conv2d(SequenceConv, nn.Conv2d):
    """A ``torch.nn.Conv2d``, with its arguments, that takes what :class:`Conv1d` takes."""


@final
class Conv3d(SequenceConv, nn.Conv3d):
    """A ``torch.nn.Conv3d``, with its arguments, that takes what :class:`Conv1d` takes."""
