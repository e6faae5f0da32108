"""Loads optimizer states in the dtypes in which they were saved."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Check = Callable[[dict[str, Any], Tensor, Mapping[str, Any]], None]


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
    lost = [
        i
        for i, (before, group) in enumerate(zip(made, groups, strict=True))
        if before and not group["amsgrad"]
    ]
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
