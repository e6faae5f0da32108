"""Weight decay: decoupled, absolute, or as a penalty."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_value
from lightning_accum.optim._options import check_options

Number = float | Tensor  # without dimensions, so that it can stay on a device


@dataclass(frozen=True)
class WeightDecay:
    r"""A weight decay, for ``weight_decay=`` of any optimizer here: decoupled by default.

    .. math::
        \text{decoupled:} \quad & \theta \leftarrow (1 - \eta \lambda) \, \theta
            \quad \text{before the step} \\
        \text{absolute:} \quad & \theta \leftarrow (1 - \lambda) \, \theta
            \quad \text{before the step} \\
        \text{otherwise:} \quad & g \leftarrow g + \lambda \, \theta

    with :math:`\eta` the learning rate of the step, so a warm-up scales the decay too. The
    optimizers of ``torch.optim`` take a number, which means a decoupled decay in ``AdamW`` only.

    A subclass that overrides :meth:`__call__` is another decay, for every optimizer here. It
    reads its options from the group, which contains those of :meth:`defaults`.

    Args:
        weight_decay: :math:`\lambda \ge 0`.
        weight_decouple: whether the decay is decoupled from the gradient.
        absolute: whether a decoupled decay is independent of the rate.

    Raises:
        ValueError: if ``weight_decay`` is negative, or not below 1 in a group with ``absolute``.

    Example:
        >>> import torch
        >>> from lightning_accum.optim import Adam
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> weight.grad = torch.zeros(1)
        >>> Adam([weight], lr=0.5, weight_decay=WeightDecay(0.1)).step()
        >>> round(weight.item(), 3)
        0.95
        >>> class L1(WeightDecay):
        ...     def __call__(self, param, grad, group):
        ...         return grad + group["weight_decay"] * param.sign()
        >>> Adam([weight], lr=0.5, betas=(0.0, 0.0), eps=0.1, weight_decay=L1(0.1)).step()
        >>> round(weight.item(), 3)
        0.7

    Source:
        Loshchilov & Hutter (2019), arXiv:1711.05101, algorithm 2.
    """

    weight_decay: float = 0.0
    weight_decouple: bool = True
    absolute: bool = False

    def __post_init__(self) -> None:
        check_options(self.defaults(), "weight_decay")

    def defaults(self) -> dict[str, Any]:
        """Returns the equivalent options of a parameter group, ``weight_decay`` first."""
        return dict(vars(self))

    def __call__(self, param: Tensor, grad: Tensor, group: Mapping[str, Any]) -> Tensor:
        """Decays a parameter in place, or adds the decay to its gradient."""
        options = {**self.defaults(), **group}
        if not options["weight_decay"]:
            return grad
        factor, penalty = decay_terms(options, options["lr"])
        followed = torch.is_grad_enabled() and bool(options.get("differentiable"))
        with torch.set_grad_enabled(followed):
            if penalty:
                return grad + penalty * param
            param.mul_(factor)
        return grad


def is_remote(value: Number) -> bool:
    """Returns whether a number is on another device than the CPU, which would be waited for."""
    return isinstance(value, Tensor) and not value.is_cpu


def decay_terms(group: Mapping[str, Any], rate: Number) -> tuple[Number, float]:
    """Returns the factor of the weights, and their share that is added to the gradient."""
    decay = group["weight_decay"]
    if isinstance(decay, WeightDecay):
        raise TypeError(
            "Option `weight_decay` of a group in `param_groups` should be a number. Found a"
            f" `{type(decay).__name__}`: write its number, `weight_decouple` and `absolute` as"
            " options of the group, or give it to the optimizer when you make it."
        )
    if not group["weight_decouple"]:
        return 1.0, decay
    return 1.0 - (decay if group["absolute"] else rate * decay), 0.0


def check_decay(decay: WeightDecay, group: Mapping[str, Any]) -> None:
    """Raises a ``ValueError`` if the options of a weight decay are out of their range."""
    check_options(group, "weight_decay", "weight_decouple", "absolute")
    own, value = group["weight_decouple"] and group["absolute"], group["weight_decay"]
    if type(decay) is WeightDecay and own and value >= 1:
        should = "below 1 with `absolute=True`, which multiplies parameters by `1 - weight_decay`"
        effect = "flips their signs" if value > 1 else "sets them to 0"
        how = f"it {effect}, so lower it, or leave out `absolute`"
        check_value(False, "weight_decay", value, should, how)


def decayed(decay: WeightDecay, param: Tensor, grad: Tensor, group: Mapping[str, Any]) -> Tensor:
    """Calls a weight decay, and returns the gradient of the step."""
    result: Any = decay(param, grad, group)
    if not isinstance(result, Tensor):
        raise TypeError(
            "A weight decay should return the gradient of the step. Found a"
            f" `{type(result).__name__}` from `{type(decay).__name__}.__call__(param, grad,"
            " group)`: return `grad`, also if it has changed `param` in place."
        )
    return result


def flattened(options: dict[str, Any], kind: type[WeightDecay]) -> dict[str, Any]:
    """Returns a copy of options in which a :class:`WeightDecay` is replaced by its options."""
    decay = options.get("weight_decay")
    if not isinstance(decay, WeightDecay):
        return dict(options)
    if type(decay) is not kind:
        raise ValueError(
            "Argument `weight_decay` of a group should be a number, or of the class of the"
            f" optimizer's, `{kind.__name__}`. Found a `{type(decay).__name__}`: make an optimizer"
            " for each kind of decay."
        )
    return {**options, **decay.defaults()}
