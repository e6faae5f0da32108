"""Any kernel of spike-time differences that delays shift."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from typing_extensions import Self

from lightning_accum.functional.kernels import Kernel
from lightning_accum.rules.delay import DelayRule
from lightning_accum.rules.kernel import check_kernel, weak_kernel


class DelayAdjustedKernelSTDP(DelayRule):
    r"""Any kernel of the nearest spikes' time difference, shifted by each synapse's delay.

    .. math::
        \Delta w_{oi} = \sum_{t:\, s_o(t) \lor s_i(t)} K\left(t_o - t_i - d_{oi}\right)

    as :class:`DelayAdjustedSTDP`, with any kernel in place of two exponentials.

    Args:
        kernel: as for :class:`~lightning_accum.KernelSTDP`.
        delay: as for :class:`DelayAdjustedSTDP`.
        **options: those of :class:`Rule`.

    Raises:
        TypeError: if the kernel is not callable.
        ValueError: if the connection has no such delays.

    Example:
        >>> from lightning_accum import DelayAdjustedKernelSTDP
        >>> from lightning_accum.functional import GaussianKernel
        >>> rule = DelayAdjustedKernelSTDP(GaussianKernel(0.1, width=5.0), params=["weight"])
    """

    kernel: Kernel

    def kernel_of(self, h: Self) -> Kernel:
        """Returns the kernel."""
        return h.kernel

    @classmethod
    def why_unmoved(cls, h: Mapping[str, Any], device: torch.device) -> str:
        """Returns that the kernel is zero at all differences of a few steps; empty if it is not."""
        return weak_kernel(h["kernel"], h["dt"], device)

    def check(self, h: Self) -> None:
        """Raises a ``TypeError`` if the kernel is not callable."""
        super().check(h)
        check_kernel(h.kernel)
