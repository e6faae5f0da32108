"""Adam and AMSGrad."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import Unpack

from lightning_accum.optim._moments import AdamFormula
from lightning_accum.optim._options import AdamOptions
from lightning_accum.optim.base import Params
from lightning_accum.optim.weight_decay import WeightDecay


class Adam(AdamFormula):
    r"""Adam, and AdamW where weights decay: ``weight_decay`` is decoupled by default.

    ``torch.optim.Adam`` adds it to the gradient, as ``WeightDecay(..., weight_decouple=False)``
    does here. ``eps`` is torch's.

    .. math::
        m &\leftarrow \beta_1 m + (1 - \beta_1) g, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) g^2 \\
        \theta &\leftarrow \theta - \alpha \, \hat m / (\sqrt{\hat v} + \epsilon), \qquad
        \hat m = m / (1 - \beta_1^t), \quad \hat v = v / (1 - \beta_2^t)

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: :math:`\alpha \ge 0`.
        betas: :math:`\beta_1, \beta_2` in [0, 1).
        eps: :math:`\epsilon \ge 0`.
        weight_decay: :math:`\lambda \ge 0` of a decoupled decay, or a :class:`WeightDecay`.
        optimized_update: whether the bias corrections are folded into the step size; ε is then
            added to :math:`\sqrt v` instead of :math:`\sqrt{\hat v}`.
        **options: those of :class:`AdamOptions`.

    Raises:
        ValueError: if an option is out of its range.

    Example:
        >>> import torch
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = Adam([weight], lr=0.25)
        >>> (3 * weight).sum().backward()
        >>> optimizer.step()
        >>> weight.data
        tensor([0.7500])

    Source:
        Kingma & Ba (2015), arXiv:1412.6980, algorithm 1; section 2 for ``optimized_update``.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | WeightDecay = 0.0,
        optimized_update: bool = False,
        **options: Unpack[AdamOptions],
    ) -> None:
        own = {"optimized_update": optimized_update}
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)


class AMSGrad(AdamFormula):
    r"""Adam whose steps never grow where the gradient was once large; its decay is decoupled.

    ``torch.optim.Adam(amsgrad=True)`` adds ``weight_decay`` to the gradient, as
    ``WeightDecay(..., weight_decouple=False)`` does here. ``eps`` is torch's.

    .. math::
        m &\leftarrow \beta_1 m + (1 - \beta_1) g, \qquad
        v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \qquad
        \bar v \leftarrow \max(\bar v, v) \\
        \theta &\leftarrow \theta - \alpha \, \hat m / (\sqrt{\hat v} + \epsilon), \qquad
        \hat m = m / (1 - \beta_1^t), \quad \hat v = \bar v / (1 - \beta_2^t)

    Args:
        params, lr, betas, eps, weight_decay, optimized_update: as for :class:`Adam`.
        amsgrad: whether the running maximum is taken; :class:`Adam` without.
        **options: those of :class:`AdamOptions`.

    Raises:
        ValueError: if an option is out of its range.

    Example:
        >>> import torch
        >>> weight = torch.nn.Parameter(torch.zeros(1))
        >>> optimizer = AMSGrad([weight], lr=1.0, betas=(0.0, 0.5))
        >>> for slope in (8.0, 1.0):
        ...     weight.grad = torch.tensor([slope])
        ...     optimizer.step()
        >>> optimizer.state[weight]["exp_avg_sq"], optimizer.state[weight]["max_exp_avg_sq"]
        (tensor([16.5000]), tensor([32.]))

    Source:
        Reddi, Kale & Kumar (2018), arXiv:1904.09237, algorithm 2, with torch's bias
        corrections.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | WeightDecay = 0.0,
        optimized_update: bool = False,
        amsgrad: bool = True,
        **options: Unpack[AdamOptions],
    ) -> None:
        own = {"optimized_update": optimized_update, "amsgrad": amsgrad}
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)
