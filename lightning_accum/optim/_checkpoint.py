"""Optimizer states that are loaded as they were saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Check = Callable[[dict[str, Any], Tensor, Mapping[str, Any]], None]


@dataclass(frozen=True)
class _Sealed:
    """A tensor that torch's loading, which casts to the parameter's dtype, does not see."""

    tensor: Tensor


def seal(
    optimizer: torch.optim.Optimizer, state_dict: dict[str, Any], check: Check
) -> dict[str, Any]:
    """A shallow copy of a state dict with the tensors of its parameters' states sealed.

    Args:
        optimizer: the optimizer that is to load it.
        state_dict: what is to be loaded.
        check: raises unless a state, given after the options and the parameter, can be its own.

    Raises:
        ValueError: if it is not a state dict, or the state of a parameter cannot be its own.
    """
    state: Any = state_dict.get("state")
    groups: Any = state_dict.get("param_groups")
    if not isinstance(state, Mapping) or not _are_groups(groups):
        raise ValueError(
            "Argument `state_dict` should be what `state_dict()` of an optimizer gave, with `state`"
            f" and `param_groups`. Found the keys {list(state_dict)}: pass the optimizer's own"
            " entry of a checkpoint."
        )
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


def _are_groups(groups: Any) -> bool:
    return isinstance(groups, (list, tuple)) and all(
        isinstance(group, Mapping) and isinstance(group.get("params"), (list, tuple))
        for group in groups
    )


def unseal(states: MutableMapping[Any, Any]) -> None:
    """Puts a copy of each tensor that is sealed in its place, on its parameter's device."""
    for param, state in states.items():
        if not isinstance(param, Tensor):  # of no parameter: torch takes such as it is
            continue
        for name, value in state.items():
            if isinstance(value, _Sealed):
                # a count stays where it is until it is known who counts
                device = value.tensor.device if name == "step" else param.device
                state[name] = value.tensor.detach().to(device, copy=True)
