"""The states of optimizers: how they are loaded, and whether they fit their parameters."""

import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import is_number
from lightning_accum.distributed.shards import local

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
