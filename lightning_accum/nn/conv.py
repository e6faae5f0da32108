"""Convolutions whose parameters take accumulated updates, and that take whole sequences."""

from __future__ import annotations

from typing import final

from torch import nn

from lightning_accum.nn.sequence_conv import SequenceConv


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
    """A ``torch.nn.Conv2d`` that is `Updatable` and takes sequences and spikes of any dtype.

    Args:
        *args: arguments of ``torch.nn.Conv2d``.
        **kwargs: keyword arguments of ``torch.nn.Conv2d``.

    Example:
        >>> import torch
        >>> Conv2d(1, 3, kernel_size=5)(torch.rand(7, 4, 1, 8, 8) < 0.1).shape
        torch.Size([7, 4, 3, 4, 4])
    """


@final
class Conv3d(SequenceConv, nn.Conv3d):
    """A ``torch.nn.Conv3d`` that is `Updatable` and takes sequences and spikes of any dtype.

    Args:
        *args: arguments of ``torch.nn.Conv3d``.
        **kwargs: keyword arguments of ``torch.nn.Conv3d``.

    Example:
        >>> import torch
        >>> Conv3d(1, 2, kernel_size=2)(torch.rand(7, 4, 1, 3, 3, 3) < 0.1).shape
        torch.Size([7, 4, 2, 2, 2, 2])
    """
