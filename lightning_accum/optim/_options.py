"""The options of adaptive optimizers, weight decay among them, and their checks."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor

from lightning_accum._checks import check_value, is_number


class MomentOptions(TypedDict, total=False):
    """Options of every optimizer that steps by a first and a second moment.

    Attributes:
        maximize: whether to ascend the gradient; ``False`` by default.
        foreach: ``True`` to step lists of tensors, ``False`` to step one tensor at a time; the
            optimizer chooses by default.
        capturable: whether a step can be captured in a CUDA graph; ``False`` by default.
        differentiable: whether autograd follows the step; ``False`` by default.
        defaults: further options of every group, for a subclass or a scheduler; they are copied.
    """

    maximize: bool
    foreach: bool | None
    capturable: bool
    differentiable: bool
    defaults: dict[str, Any] | None


class AdamOptions(MomentOptions, total=False):
    """Options of every optimizer that steps by Adam's formula.

    Attributes:
        fused: ``True`` to require torch's fused kernel, ``False`` to do without it; by default it
            is used if it can be, and this package has no compiled kernel for the parameters.
    """

    fused: bool | None


# Options whose change requires a new plan of the step.
PLANNED = ("capturable", "differentiable", "foreach", "fused", "amsgrad", "optimized_update")


def _is_rate(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.numel() == 1 and bool((value >= 0).all())
    return is_number(value) and 0 <= value < math.inf


def _is_betas(value: Any) -> bool:
    try:
        pair = tuple(value)
    except TypeError:
        return False
    return len(pair) == 2 and all(is_number(beta) and 0 <= beta < 1 for beta in pair)


_NON_NEGATIVE = lambda value: is_number(value) and value >= 0, "a non-negative number"
_FLAG = lambda value: isinstance(value, bool), "True or False"
_CHOICE = lambda value: value is None or isinstance(value, bool), "True, False or None"
# By option that is not a flag, a predicate of its values, and the values in words.
_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "lr": (_is_rate, "a non-negative learning rate"),
    "betas": (_is_betas, "two numbers in [0, 1)"),
    "eps": _NON_NEGATIVE,
    "weight_decay": _NON_NEGATIVE,
    **dict.fromkeys(("foreach", "fused"), _CHOICE),
    "warmup": (
        lambda value: is_number(value) and (value >= 1 or value == 0),
        "0, or a number of steps of at least 1",
    ),
}


def check_options(options: Mapping[str, Any], *names: str) -> None:
    """Raises a ``ValueError`` if one of the named options is there and out of its range."""
    for name in names:
        if name in options:
            fits, should = _RANGES.get(name, _FLAG)
            check_value(fits(options[name]), name, options[name], should)


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
        how = f"it {_effect(1 - value)}, so lower it, or leave out `absolute`"
        check_value(False, "weight_decay", value, should, how)


def warn_of_flips(optimizer: str, factor: Number, rate: Number, decay: float) -> None:
    """Warns that a weight decay flips the signs of parameters, or leaves nothing of them."""
    warnings.warn(
        f"The weight decay of `{optimizer}` should multiply parameters by a factor above 0 in each"
        f" step, `1 - lr * weight_decay`. Found {factor:g}, with a learning rate of {rate:g} and"
        f" `weight_decay = {decay:g}`, which {_effect(factor)}: lower one of them.",
        UserWarning,
        stacklevel=4,
    )


def _effect(factor: Number) -> str:
    """Returns what a factor that is not above 0 does to parameters."""
    return "flips their signs" if factor < 0 else "sets them to 0"


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
