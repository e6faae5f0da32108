"""Optimizer states that are loaded as they were saved."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class _Sealed:
    """A tensor that torch's loading, which casts to the parameter's dtype, does not see."""

    tensor: Tensor


def seal(optimizer: torch.optim.Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
    """A shallow copy of a state dict with the tensors of its parameters' states sealed."""
    state = dict(state_dict["state"])
    for group in state_dict["param_groups"]:
        for key in group["params"]:
            if key in state:
                state[key] = {
                    name: _Sealed(value) if isinstance(value, Tensor) else value
                    for name, value in state[key].items()
                }
    return {**state_dict, "state": state}


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
