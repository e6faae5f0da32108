"""RAdam."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import Unpack

from lightning_accum.optim._moments import MomentOptimizer
from lightning_accum.optim._options import MomentOptions
from lightning_accum.optim.base import Params
from lightning_accum.optim.weight_decay import WeightDecay


class RAdam(MomentOptimizer):
    r"""Adam that trusts its second moment only once enough gradients are in it.

    ``weight_decay`` is decoupled; ``torch.optim.RAdam`` adds it to the gradient unless told
    otherwise, as ``WeightDecay(..., weight_decouple=False)`` does here. ``eps`` is torch's.

    .. math::
        \rho_\infty &= \frac{2}{1 - \beta_2} - 1, \qquad
        \rho_t = \rho_\infty - \frac{2 t \beta_2^t}{1 - \beta_2^t} \\
        \theta &\leftarrow \theta - \alpha \, r_t \, \hat m
            \frac{\sqrt{1 - \beta_2^t}}{\sqrt v + \epsilon}, \qquad
        r_t = \sqrt{\frac{(\rho_t - 4)(\rho_t - 2) \, \rho_\infty}
            {(\rho_\infty - 4)(\rho_\infty - 2) \, \rho_t}}
            \quad \text{for } \rho_t \ge 5

    and before that :math:`\theta \leftarrow \theta - \alpha \hat m`, or no step at all.

    Args:
        params, lr, betas, eps, weight_decay: as for :class:`Adam`.
        optimized_update: whether ε is added to :math:`\sqrt v`, as above and in ``torch.optim``,
            or to :math:`\sqrt{\hat v}`, as in :class:`Adam`.
        degenerate_to_sgd: whether the first steps are those of momentum, rather than none.
        compile: whether code that is compiled at the first step steps large tensors, in one pass
            over memory; compilation takes seconds and needs a C++ compiler.
        **options: those of :class:`MomentOptions`.

    Example:
        >>> import torch
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = RAdam([weight], lr=0.25)
        >>> weight.grad = torch.tensor([2.0])
        >>> optimizer.step()  # momentum
        >>> weight.data
        tensor([0.5000])

    Source:
        Liu et al. (2020), arXiv:1908.03265, algorithm 2.
    """

    _rectifies = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | WeightDecay = 0.0,
        optimized_update: bool = True,
        degenerate_to_sgd: bool = True,
        *,
        compile: bool = False,
        **options: Unpack[MomentOptions],
    ) -> None:
        own = {
            "optimized_update": optimized_update,
            "degenerate_to_sgd": degenerate_to_sgd,
            "compile": compile,
        }
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)
