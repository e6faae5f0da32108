"""The options and the states of adaptive optimizers, and their checks."""

import math
import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor

from lightning_accum._checks import check_value, is_number
from lightning_accum.distributed.shards import local


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
        how = f"it {effect(1 - value)}, so lower it, or leave out `absolute`"
        check_value(False, "weight_decay", value, should, how)


def effect(factor: Number) -> str:
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


Check = Callable[[dict[str, Any], Tensor, Mapping[str, Any]], None]


def as_real(tensor: Tensor) -> Tensor:
    """Returns a real tensor unchanged, and a complex one as a view of pairs of numbers."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


@dataclass(frozen=True)
class _Sealed:
    """Hides a tensor from torch's loading, which would cast it to the parameter's dtype."""

    tensor: Tensor


def seal(
    optimizer: torch.optim.Optimizer, state_dict: dict[str, Any], check: Check
) -> dict[str, Any]:
    """Returns a shallow copy of a state dict whose states have their tensors sealed."""
    state, groups = checked_parts(optimizer, state_dict)
    sealed = dict(state)
    for saved, group in zip(groups, optimizer.param_groups, strict=False):
        options = {**optimizer.defaults, **saved}
        for key, param in zip(saved["params"], group["params"], strict=False):
            if key not in state:
                continue
            own = state[key]
            if not isinstance(own, Mapping):
                raise ValueError(
                    f"The state of parameter {key} should be a dict. Found `{type(own).__name__}`."
                )
            if own:
                check(options, param, own)
            sealed[key] = {
                name: _Sealed(value) if isinstance(value, Tensor) else value
                for name, value in own.items()
            }
    return {**state_dict, "state": sealed}


def checked_parts(
    optimizer: torch.optim.Optimizer, state_dict: Mapping[str, Any]
) -> tuple[Mapping[Any, Any], Sequence[Mapping[str, Any]]]:
    """Returns the states and the groups of a state dict."""
    state: Any = state_dict.get("state")
    groups: Any = state_dict.get("param_groups")
    if not isinstance(state, Mapping) or not _are_groups(groups):
        raise ValueError(
            "Argument `state_dict` should be a result of `state_dict()`, with `state`"
            f" and `param_groups`. Found the keys {list(state_dict)}: pass the optimizer's own"
            " entry of a checkpoint."
        )
    sizes, own = ([len(each["params"]) for each in g] for g in (groups, optimizer.param_groups))
    if sizes != own:
        raise ValueError(
            f"Entry `param_groups` of the state should have groups of {own} parameters, as the"
            f" optimizer. Found {sizes}: load the state into an optimizer of the same parameters."
        )
    return state, groups


def _are_groups(groups: Any) -> bool:
    return isinstance(groups, (list, tuple)) and all(
        isinstance(group, Mapping)
        and isinstance(group.get("params"), (list, tuple))
        and all(isinstance(key, (int, str)) for key in group["params"])
        for group in groups
    )


def unseal(states: MutableMapping[Any, Any]) -> None:
    """Replaces each sealed tensor by a copy on the device of its parameter."""
    for param, state in states.items():
        if not isinstance(param, Tensor):  # torch leaves other entries unchanged
            continue
        for name, value in state.items():
            if isinstance(value, _Sealed):
                # A count stays on its device until the first step moves it.
                device = value.tensor.device if name == "step" else param.device
                state[name] = value.tensor.detach().to(device, copy=True)


def warn_of_no_maximum(
    optimizer: str, made: Sequence[bool], groups: Sequence[Mapping[str, Any]]
) -> None:
    """Warns if the options of a loaded state have ended an optimizer's running maximum."""
    pairs = enumerate(zip(made, groups, strict=True))
    lost = [i for i, (before, group) in pairs if before and not group["amsgrad"]]
    if lost:
        warnings.warn(
            f"`{optimizer}` takes a running maximum of the second moment, and should be loaded with"
            f" a state that has one. Found `amsgrad = False` in groups {lost} of the loaded state,"
            " whose options replace those of the optimizer, so that it goes on without the"
            ' maximum: set `group["amsgrad"] = True` in `param_groups` after loading, and the'
            " maximum begins with the loaded moment.",
            UserWarning,
            stacklevel=3,
        )


def check_state(
    optimizer: str, names: tuple[str, ...], param: Tensor, state: Mapping[str, Any]
) -> None:
    """Raises a ``ValueError`` if a state lacks a moment, or one does not fit the parameter."""
    missing = [name for name in ("step", *names[:2]) if name not in state]
    if missing:
        raise ValueError(
            f"The state of a parameter of shape {tuple(param.shape)} should hold"
            f" {['step', *names]}. Found no {missing}: load a state of `{optimizer}`, or leave the"
            " parameter's state out."
        )
    shape = tuple(param.shape)
    for name in (each for each in names if each in state):
        value = state[name]
        found = f"`{type(value).__name__}`"
        if isinstance(value, Tensor):
            # A complex parameter has moments of pairs of numbers, or of complex numbers.
            real = (*shape, 2) if param.is_complex() and not value.is_complex() else shape
            dense = value.layout is torch.strided and value.is_meta == param.is_meta
            # torch has no sums of a floating-point dtype of one byte.
            floats = value.is_floating_point() and value.dtype.itemsize > 1
            kind = floats or (value.is_complex() and param.is_complex())
            if dense and kind and value.shape == real:
                continue
            found = f"one of shape {tuple(value.shape)}, {value.dtype}, {value.layout}"
            found += f", {value.device}"
        raise ValueError(
            f"The state of a parameter should hold `{name}` as a dense floating-point tensor of the"
            f" parameter's shape, {shape}. Found {found}: load a state of the same parameters in"
            " the same order, or begin without one."
        )


def check_values(names: tuple[str, ...], param: Tensor, state: Mapping[str, Any]) -> None:
    """Raises a ``ValueError`` if a checked state has a count or moments that no step can make."""
    # Reading the values waits for their device.
    checked_count(state["step"])
    for i, name in enumerate(names):
        values = as_real(local(state[name])) if name in state else None
        if values is None or values.is_meta:
            continue
        fits = values >= 0 if i else values.isfinite()
        if not fits.all():
            wrong = values.masked_select(~fits)
            should = "numbers of at least zero" if i else "finite numbers"
            raise ValueError(
                f"The state of a parameter of shape {tuple(param.shape)} should hold {should} in"
                f" `{name}`. Found {len(wrong)} others, such as {wrong[0].item():g}, with which"
                " steps would make the parameter NaN: load an earlier checkpoint, or leave the"
                " parameter's state out."
            )


def prepare(state: dict[str, Any], names: tuple[str, ...], param: Tensor, capturable: bool) -> None:
    """Converts a checked state, in place, to the form that steps use."""
    for name in names:
        if name in state:
            state[name] = as_real(state[name])  # Those of torch's optimizers are complex.
    step = state["step"]
    counts_there = isinstance(step, Tensor) and step.device == param.device and not step.dim()
    if not (capturable and counts_there):  # reading that would synchronise
        step = checked_count(step)
    if capturable:
        step = torch.as_tensor(step, dtype=torch.float32, device=param.device)
    state["step"] = step


def checked_count(step: Any) -> int:
    """Returns a count of steps as an integer."""
    given = step
    if isinstance(step, Tensor) and step.numel() == 1 and not step.is_meta:
        step = step.item()
    if not is_number(step) or not 0 <= step < 2**53 or not float(step).is_integer():
        raise ValueError(
            "The state of a parameter should count its steps, from zero, in `step`. Found"
            f" `step = {given!r}`: load a state that was saved by `state_dict()`."
        )
    return int(step)
