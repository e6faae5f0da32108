"""Any kernel of spike-time differences that delays shift."""

from __future__ import annotations

from typing import Any, final

from lightning_accum.cells.state import Hyperparameters
from lightning_accum.functional.kernels import Kernel
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.rules.delay_rule import DelayRule
from lightning_accum.rules.kernel import check_kernel


@final
class DelayAdjustedKernelSTDP(DelayRule):
    r"""Any kernel of the nearest spikes' time difference, shifted by each synapse's delay.

    .. math::
        \Delta w_{oi} = \sum_{t:\, s_o(t) \lor s_i(t)} K\left(t_o - t_i - d_{oi}\right)

    as :class:`DelayAdjustedSTDP`, with any kernel in place of two exponentials.

    Args:
        kernel: as for :class:`~lightning_accum.KernelSTDP`.
        delay: name of the connection's delays, a parameter or buffer ``[out, in]`` in ms.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: ``time_dim``, ``params``, ``carry`` and ``picker`` of
            :class:`~lightning_accum.rules.base.Rule`.

    Raises:
        TypeError: if the kernel is not callable.
        ValueError: if the connection has no such delays.

    Example:
        >>> from lightning_accum import DelayAdjustedKernelSTDP
        >>> from lightning_accum.functional import GaussianKernel
        >>> rule = DelayAdjustedKernelSTDP(GaussianKernel(0.1, width=5.0), params=["weight"])
    """

    def __init__(
        self,
        kernel: Kernel,
        delay: str = "delay",
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        super().__init__({"kernel": kernel}, delay, dt, batch_reduction, **options)

    def check(self, h: Hyperparameters) -> None:
        """Raises a ``TypeError`` if the kernel is not callable."""
        super().check(h)
        check_kernel(h.kernel)
