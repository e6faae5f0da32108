"""Adam with a warm-up and a cosine decay."""

from __future__ import annotations

import warnings

from torch import Tensor
from typing_extensions import Unpack

from lightning_accum._checks import is_number
from lightning_accum.functional.optimization import Number, warmup_cosine_factor
from lightning_accum.optim._adam_formula import AdamFormula
from lightning_accum.optim._checks import check, is_warmup
from lightning_accum.optim._options import AdamOptions
from lightning_accum.optim._plan import Batch
from lightning_accum.optim.base import Group, Params
from lightning_accum.optim.weight_decay import WeightDecay

_SPARE = 20  # steps after the end that may be meant, and one more for each 20 before it


class AdamWarmupCosineDecay(AdamFormula):
    r"""Adam or AMSGrad whose rate rises linearly, then falls to zero along half a cosine.

    ``weight_decay`` is decoupled; ``torch.optim.Adam`` adds it to the gradient, as
    ``WeightDecay(..., weight_decouple=False)`` does here. ``eps`` is torch's.

    .. math::
        \alpha_t = \alpha \min(1, t / w) \cdot \tfrac12 (1 + \cos \pi p), \qquad
        p = \operatorname{clamp}\!\left(\frac{t - w}{T - w}, 0, 1\right)

    and otherwise the step of :class:`Adam`, or of :class:`AMSGrad`. After :math:`T` steps the rate
    stays zero. A decoupled weight decay is scaled by :math:`\alpha_t`.

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: :math:`\alpha \ge 0`.
        betas: :math:`\beta_1, \beta_2` in [0, 1).
        eps: :math:`\epsilon \ge 0`.
        weight_decay: :math:`\lambda \ge 0` of a decoupled decay, or a :class:`WeightDecay`.
        warmup: :math:`w \ge 0` in steps; zero for no warm-up.
        total_steps: :math:`T > w`, warm-up included.
        amsgrad: whether the running maximum of the second moment replaces it.
        optimized_update: as for :class:`Adam`.
        **options: the options of :class:`AdamOptions`: ``maximize``, ``foreach``, ``fused``,
            ``capturable``, ``differentiable`` and ``defaults``.

    Raises:
        ValueError: if an option is out of its range.

    Example:
        >>> import torch
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> optimizer = AdamWarmupCosineDecay([weight], lr=1.0, warmup=2, total_steps=6)
        >>> [round(optimizer.rate(optimizer.param_groups[0], t), 3) for t in range(1, 8)]
        [0.5, 1.0, 0.854, 0.5, 0.146, 0.0, 0.0]

    Source:
        Loshchilov & Hutter (2017), arXiv:1608.03983; Kingma & Ba (2015), arXiv:1412.6980.
    """

    _warned_of_end = False

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | WeightDecay = 0.0,
        warmup: int = 0,
        total_steps: int = 10_000,
        amsgrad: bool = False,
        optimized_update: bool = False,
        **options: Unpack[AdamOptions],
    ) -> None:
        own = {
            "warmup": warmup,
            "total_steps": total_steps,
            "amsgrad": amsgrad,
            "optimized_update": optimized_update,
        }
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)

    def _step_batch(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        super()._step_batch(group, batch, grads)
        total, step = group["total_steps"], batch.states[0].get("step")
        # The count of a captured step is on the device.
        if isinstance(step, int) and step > total + max(_SPARE, total / _SPARE):
            self._warn_of_end(step, total)

    def _warn_of_end(self, step: int, total: float) -> None:
        """Warns, once, that the learning rate is zero."""
        if self._warned_of_end:
            return
        self._warned_of_end = True
        warnings.warn(
            f"Argument `total_steps` of `{type(self).__name__}` should be the number of steps of"
            f" the whole training. Found {total:g} and step {step}: the learning rate is 0 since"
            " then, and nothing is learned any more. Pass the number of steps that you train for,"
            " such as `trainer.estimated_stepping_batches`.",
            UserWarning,
            stacklevel=4,
        )

    def rate(self, group: Group, step: Number) -> Number:
        """Returns the learning rate of a step.

        Args:
            group: the options of a group.
            step: counts from one; a number, or a 0-dim tensor in a ``capturable`` group.
        """
        lr: Number = group["lr"]
        return lr * warmup_cosine_factor(step, group["warmup"], group["total_steps"])

    def validate(self, group: Group) -> None:
        """Raises a ``ValueError`` if an option of a group is out of its range."""
        super().validate(group)
        check("warmup", group["warmup"], is_warmup, "0, or a number of steps of at least 1")
        check(
            "total_steps",
            group["total_steps"],
            lambda total: is_number(total) and total > group["warmup"],
            f"a number of steps above `warmup = {group['warmup']}`",
        )
