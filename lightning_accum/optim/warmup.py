"""Adam with a warm-up."""

from __future__ import annotations

from torch import Tensor
from typing_extensions import Unpack

from lightning_accum.functional.optimization import Number, warmup_factor
from lightning_accum.optim._adam_formula import AdamFormula
from lightning_accum.optim._checks import check, is_warmup
from lightning_accum.optim._options import AdamOptions
from lightning_accum.optim.base import Group, Params
from lightning_accum.optim.weight_decay import WeightDecay


class AdamWarmup(AdamFormula):
    r"""Adam or AMSGrad whose rate rises linearly to its value; its decay is decoupled.

    ``torch.optim.Adam`` adds ``weight_decay`` to the gradient, as
    ``WeightDecay(..., weight_decouple=False)`` does here. ``eps`` is torch's.

    .. math:: \alpha_t = \alpha \min(1, t / w)

    and otherwise the step of :class:`Adam`, or of :class:`AMSGrad`. The rate itself stays in the
    group's ``lr``, for a scheduler to change; a decoupled weight decay is scaled by
    :math:`\alpha_t`.

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: :math:`\alpha \ge 0`.
        betas: :math:`\beta_1, \beta_2` in [0, 1).
        eps: :math:`\epsilon \ge 0`.
        weight_decay: :math:`\lambda \ge 0` of a decoupled decay, or a :class:`WeightDecay`.
        warmup: :math:`w \ge 0` in steps; zero for no warm-up.
        amsgrad: whether the running maximum of the second moment replaces it.
        optimized_update: as for :class:`Adam`.
        **options: the options of :class:`AdamOptions`: ``maximize``, ``foreach``, ``fused``,
            ``capturable``, ``differentiable`` and ``defaults``.

    Raises:
        ValueError: if an option is out of its range.

    Example:
        >>> import torch
        >>> optimizer = AdamWarmup([torch.nn.Parameter(torch.ones(1))], lr=1.0, warmup=4)
        >>> [optimizer.rate(optimizer.param_groups[0], t) for t in (1, 2, 4, 5)]
        [0.25, 0.5, 1.0, 1.0]

    Source:
        Vaswani et al. (2017), arXiv:1706.03762; Kingma & Ba (2015), arXiv:1412.6980.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | WeightDecay = 0.0,
        warmup: int = 0,
        amsgrad: bool = False,
        optimized_update: bool = False,
        **options: Unpack[AdamOptions],
    ) -> None:
        own = {"warmup": warmup, "amsgrad": amsgrad, "optimized_update": optimized_update}
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)

    def rate(self, group: Group, step: Number) -> Number:
        """Returns the learning rate of a step, after its warm-up.

        Args:
            group: the options of a group.
            step: counts from one; a number, or a 0-dim tensor in a ``capturable`` group.
        """
        lr: Number = group["lr"]
        return lr * warmup_factor(step, group["warmup"])

    def validate(self, group: Group) -> None:
        """Raises a ``ValueError`` if an option of a group is out of its range."""
        super().validate(group)
        check("warmup", group["warmup"], is_warmup, "0, or a number of steps of at least 1")
