"""AdaBelief."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import Unpack

from lightning_accum.optim._moments import MomentOptimizer
from lightning_accum.optim._options import MomentOptions
from lightning_accum.optim.base import Params
from lightning_accum.optim.weight_decay import WeightDecay


class AdaBelief(MomentOptimizer):
    r"""Adam that steps far where gradients come as expected, and little where they do not.

    ``weight_decay`` is decoupled, as in ``torch.optim.AdamW``. ``eps`` is not that of torch's Adam:
    with Adam's habitual 1e-8 in place of 1e-16, steps of small gradients shrink.

    .. math::
        m &\leftarrow \beta_1 m + (1 - \beta_1) g, \qquad
        s \leftarrow \beta_2 s + (1 - \beta_2)(g - m)^2 + \epsilon \\
        \theta &\leftarrow \theta - \alpha \, \hat m / (\sqrt{\hat s} + \epsilon), \qquad
        \hat m = m / (1 - \beta_1^t), \quad \hat s = s / (1 - \beta_2^t)

    As in the paper's algorithm, ε joins :math:`s` at every step, and stands outside the root as
    well: it is of the order of a squared gradient, and far smaller than Adam's.

    Args:
        params, lr, betas, weight_decay: as for :class:`Adam`.
        eps: :math:`\epsilon \ge 0`, inside the average and outside the root.
        amsgrad: whether the running maximum of :math:`s` replaces it.
        rectify: whether to step as :class:`RAdam` does, with :math:`s` for :math:`v`.
        degenerate_to_sgd: as for :class:`RAdam`, if ``rectify``.
        compile: as for :class:`RAdam`.
        **options: those of :class:`MomentOptions`.

    Example:
        >>> import torch
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> optimizer = AdaBelief([weight], lr=0.1, betas=(0.5, 0.5))
        >>> for slopes in ([1.0, 1.0], [1.0, -1.0], [1.0, 1.0]):
        ...     weight.grad = torch.tensor(slopes)
        ...     optimizer.step()
        >>> bool(weight[0].abs() > 3 * weight[1].abs())  # the steady slope goes further
        True

    Source:
        Zhuang et al. (2020), arXiv:2010.07468, algorithm 2.
    """

    _second = "exp_avg_var"
    _belief = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-16,
        weight_decay: float | WeightDecay = 0.0,
        amsgrad: bool = False,
        rectify: bool = False,
        degenerate_to_sgd: bool = True,
        *,
        compile: bool = False,
        **options: Unpack[MomentOptions],
    ) -> None:
        own = {
            "amsgrad": amsgrad,
            "rectify": rectify,
            "degenerate_to_sgd": degenerate_to_sgd,
            "compile": compile,
        }
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)
