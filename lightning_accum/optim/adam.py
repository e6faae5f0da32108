"""Adam and its variants: AMSGrad, RAdam and AdaBelief."""

from torch import Tensor
from typing_extensions import Unpack

from lightning_accum.optim._moment_optimizer import MomentOptimizer
from lightning_accum.optim._options import AdamOptions, MomentOptions
from lightning_accum.optim.base import Params
from lightning_accum.optim.weight_decay import WeightDecay


class Adam(MomentOptimizer):
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


class AMSGrad(MomentOptimizer):
    r"""Adam whose steps never grow where the gradient was once large; its decay is decoupled.

    .. math:: \bar v \leftarrow \max(\bar v, v), \qquad \hat v = \bar v / (1 - \beta_2^t)

    and otherwise the step of :class:`Adam`, whose differences from ``torch.optim`` it shares.

    Args:
        params, lr, betas, eps, weight_decay, optimized_update: as for :class:`Adam`.
        amsgrad: whether the running maximum is taken; :class:`Adam` without.
        **options: those of :class:`AdamOptions`.

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


class RAdam(MomentOptimizer):
    r"""Adam that trusts its second moment only once enough gradients are in it.

    ``weight_decay`` is decoupled, as in :class:`Adam`; ``eps`` is torch's.

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

    _rectifies, _is_adam = True, False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | WeightDecay = 0.0,
        optimized_update: bool = True,
        degenerate_to_sgd: bool = True,
        **options: Unpack[MomentOptions],
    ) -> None:
        own = {"optimized_update": optimized_update, "degenerate_to_sgd": degenerate_to_sgd}
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)


class AdaBelief(MomentOptimizer):
    r"""Adam that steps far where gradients come as expected, and little where they do not.

    ``weight_decay`` is decoupled, as in ``torch.optim.AdamW``. ``eps`` is not that of torch's Adam:
    with Adam's habitual 1e-8 in place of 1e-16, steps of small gradients shrink.

    .. math::
        m &\leftarrow \beta_1 m + (1 - \beta_1) g, \qquad
        s \leftarrow \beta_2 s + (1 - \beta_2)(g - m)^2 + \epsilon \\
        \theta &\leftarrow \theta - \alpha \, \hat m / (\sqrt{\hat s} + \epsilon), \qquad
        \hat m = m / (1 - \beta_1^t), \quad \hat s = s / (1 - \beta_2^t)

    Args:
        params, lr, betas, weight_decay: as for :class:`Adam`.
        eps: :math:`\epsilon \ge 0`, inside the average and outside the root.
        amsgrad: whether the running maximum of :math:`s` replaces it.
        rectify: whether to step as :class:`RAdam` does, with :math:`s` for :math:`v`.
        degenerate_to_sgd: as for :class:`RAdam`, if ``rectify``.
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
    _belief, _is_adam = True, False

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
        **options: Unpack[MomentOptions],
    ) -> None:
        own = {"amsgrad": amsgrad, "rectify": rectify, "degenerate_to_sgd": degenerate_to_sgd}
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)
