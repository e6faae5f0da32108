"""Adam with a schedule of its rate: a warm-up, a cosine, and that of the Transformer."""

import math
import warnings
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Unpack

from lightning_accum._checks import check_value, is_number
from lightning_accum.optim._moment_optimizer import MomentOptimizer
from lightning_accum.optim._options import AdamOptions
from lightning_accum.optim.base import Batch, Group, Params
from lightning_accum.optim.weight_decay import Number, WeightDecay


def _rise(step: Number, warmup: float) -> Number:
    """Returns a factor that rises from zero to one in a warm-up."""
    factor: Number = step / warmup if warmup > 0 else step * 0.0 + 1.0
    return factor.clamp(0.0, 1.0) if isinstance(factor, Tensor) else min(max(factor, 0.0), 1.0)


class AdamWarmup(MomentOptimizer):
    r"""Adam or AMSGrad whose rate rises linearly to its value; its decay is decoupled.

    .. math:: \alpha_t = \alpha \min(1, t / w)

    and otherwise the step of :class:`Adam`, or of :class:`AMSGrad`. The rate itself stays in the
    group's ``lr``, for a scheduler to change; a decoupled weight decay is scaled by
    :math:`\alpha_t`.

    Args:
        params, lr, betas, eps, weight_decay, amsgrad, optimized_update: as for :class:`AMSGrad`.
        warmup: :math:`w \ge 0` in steps; zero for no warm-up.
        **options: those of :class:`AdamOptions`.

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
        """Returns the learning rate of a step, after its warm-up."""
        lr: Number = group["lr"]
        return lr * _rise(step, group["warmup"])


_SPARE = 20  # steps after the end that may be meant, and one more for each 20 before it


class AdamWarmupCosineDecay(MomentOptimizer):
    r"""Adam or AMSGrad whose rate rises linearly, then falls to zero along half a cosine.

    .. math::
        \alpha_t = \alpha \min(1, t / w) \cdot \tfrac12 (1 + \cos \pi p), \qquad
        p = \operatorname{clamp}\!\left(\frac{t - w}{T - w}, 0, 1\right)

    and otherwise the step of :class:`Adam`, or of :class:`AMSGrad`. After :math:`T` steps the rate
    stays zero. A decoupled weight decay is scaled by :math:`\alpha_t`.

    Args:
        params, lr, betas, eps, weight_decay, amsgrad, optimized_update: as for :class:`AMSGrad`.
        warmup: :math:`w \ge 0` in steps; zero for no warm-up.
        total_steps: :math:`T > w`, warm-up included.
        **options: those of :class:`AdamOptions`.

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
        own: dict[str, Any] = {"amsgrad": amsgrad, "optimized_update": optimized_update}
        own |= {"warmup": warmup, "total_steps": total_steps}
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)

    def _step_batch(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        super()._step_batch(group, batch, grads)
        total, step = group["total_steps"], batch.states[0].get("step")
        end = total + max(_SPARE, total / _SPARE)
        # The count of a captured step is on the device.
        if self._warned_of_end or not isinstance(step, int) or step <= end:
            return
        self._warned_of_end = True
        warnings.warn(
            f"Argument `total_steps` of `{type(self).__name__}` should be the number of steps of"
            f" the whole training. Found {total:g} and step {step}: the learning rate is 0 since"
            " then, and nothing is learned any more. Pass the number of steps that you train for,"
            " such as `trainer.estimated_stepping_batches`.",
            UserWarning,
            stacklevel=3,
        )

    def rate(self, group: Group, step: Number) -> Number:
        """Returns the learning rate of a step."""
        lr, warmup = group["lr"], group["warmup"]
        progress = _rise(step - warmup, group["total_steps"] - warmup)
        cosine: Any = torch.cos if isinstance(progress, Tensor) else math.cos
        rate: Number = lr * _rise(step, warmup) * (0.5 * (1.0 + cosine(math.pi * progress)))
        return rate

    def validate(self, group: Group) -> None:
        """Raises a ``ValueError`` if an option of a group is out of its range."""
        super().validate(group)
        warmup, total = group["warmup"], group["total_steps"]
        should = f"a number of steps above `warmup = {warmup}`"
        check_value(is_number(total) and total > warmup, "total_steps", total, should)


_LOW = 1e-5  # a peak rate below which `lr` was probably taken from another optimizer


class Noam(MomentOptimizer):
    r"""Adam with the schedule of the Transformer: a rise, then the inverse root of the step.

    ``eps`` is the Transformer's, a tenth of torch's default.

    .. math:: \alpha_t = \alpha \, d_{\text{model}}^{-1/2} \min(t^{-1/2}, t \, w^{-3/2})

    and otherwise the step of :class:`Adam`, or of :class:`AMSGrad`. The largest rate, at
    :math:`t = w`, is :math:`\alpha / \sqrt{d_{\text{model}} w}`. A decoupled weight decay is
    scaled by :math:`\alpha_t`.

    Args:
        params, betas, eps, weight_decay, amsgrad, optimized_update: as for :class:`AMSGrad`.
        lr: :math:`\alpha \ge 0`, a factor of the schedule, about 1. A warning names the largest
            rate if it is below 1e-5, as with a learning rate of Adam.
        warmup: :math:`w \ge 1` in steps.
        d_model: :math:`d_{\text{model}} \ge 1`, the width of the model.
        **options: those of :class:`AdamOptions`.

    Example:
        >>> import torch
        >>> optimizer = Noam([torch.nn.Parameter(torch.ones(1))], warmup=4, d_model=16)
        >>> [optimizer.rate(optimizer.param_groups[0], t) for t in (1, 4, 16)]
        [0.03125, 0.125, 0.0625]

    Source:
        Vaswani et al. (2017), arXiv:1706.03762, section 5.3.
    """

    def __init__(
        self,
        params: Params,
        lr: float | Tensor = 1.0,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        weight_decay: float | WeightDecay = 0.0,
        warmup: int = 4000,
        d_model: int = 512,
        amsgrad: bool = False,
        optimized_update: bool = False,
        **options: Unpack[AdamOptions],
    ) -> None:
        own: dict[str, Any] = {"amsgrad": amsgrad, "optimized_update": optimized_update}
        own |= {"warmup": warmup, "d_model": d_model}
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)

    def add_param_group(self, param_group: Group) -> None:
        """Adds a group of parameters, and warns if its largest rate is very low."""
        super().add_param_group(param_group)
        _warn_of_low_rate(type(self).__name__, self.param_groups[-1])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a copy of a state, and warns if it makes the largest rate very low.

        The rate of a checkpoint of torch's Adam, about 1e-3, replaces the factor of the schedule.
        """
        was_low = [_is_low(group) for group in self.param_groups]
        super().load_state_dict(state_dict)
        for before, group in zip(was_low, self.param_groups, strict=True):
            if not before:
                _warn_of_low_rate(type(self).__name__, group, "after loading, set `group['lr'] = ")

    def rate(self, group: Group, step: Number) -> Number:
        """Returns the learning rate of a step."""
        lr: Number = group["lr"]
        scale: float = group["d_model"] ** -0.5
        slope: float = group["warmup"] ** -1.5
        if isinstance(step, Tensor):
            return lr * scale * torch.minimum(slope * step, step.rsqrt())
        return lr * scale * min(slope * step, 1.0 / math.sqrt(step))

    def validate(self, group: Group) -> None:
        """Raises a ``ValueError`` if an option of a group is out of its range."""
        super().validate(group)
        for name, should in (("warmup", "a number of steps"), ("d_model", "a width")):
            fits = is_number(group[name]) and group[name] >= 1
            check_value(fits, name, group[name], f"{should} of at least 1")


def _is_low(group: Group) -> bool:
    """Returns whether the largest rate of a group is very low; does not wait for a device."""
    lr = group["lr"]
    if isinstance(lr, Tensor):
        lr = lr.item() if lr.is_cpu else math.nan
    return bool(0 < lr / math.sqrt(group["d_model"] * group["warmup"]) < _LOW)


def _warn_of_low_rate(optimizer: str, group: Group, how: str = "pass `lr=") -> None:
    """Warns if the largest rate of a group is very low."""
    if not _is_low(group):
        return
    lr, warmup, d_model = float(group["lr"]), group["warmup"], group["d_model"]
    root = math.sqrt(d_model * warmup)
    warnings.warn(
        f"Argument `lr` of `{optimizer}` should be a factor of its schedule, about 1. Found"
        f" {lr:g}, with which the learning rate is {lr / root:.1e} at most, after {warmup:g} steps,"
        f" for `d_model = {d_model:g}`: {how}{1e-3 * root:.2g}` for a largest rate of 1e-3, or"
        " ignore this if the low rate is meant.",
        UserWarning,
        stacklevel=3,
    )
