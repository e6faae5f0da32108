"""The states of all processes in one checkpoint: those of trainers, and of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import nn

from lightning_accum.distributed.world import is_first, processes

State = dict[str, Any]


def states_of_others(own: Callable[[], State]) -> list[State] | None:
    """Gathers the states of the other processes in the first one.

    Every process has to call it.

    Args:
        own: returns the state of this process, as tensors and builtins. It is not called in the
            first process, which has its state already.

    Returns:
        The states in the order of the ranks, from rank 1; ``None`` in every other process.
    """
    if not is_first():
        dist.gather_object(own())
        return None
    found: list[Any] = [None] * processes()
    dist.gather_object(None, found)
    return found[1:]


def module_states(model: nn.Module) -> dict[str, State]:
    """Returns what modules of this package keep in addition to their parameters.

    These are potentials, thresholds, random streams and counts, which differ between processes.

    Args:
        model: the model that contains the modules.

    Returns:
        The state dicts by the modules' names, without empty ones.
    """
    found: dict[str, State] = {}
    for name, module in model.named_modules():
        within = any(name.startswith(f"{known}.") for known in found)
        if within or not type(module).__module__.startswith("lightning_accum."):
            continue
        learned = dict(module.named_parameters())
        state = {key: value for key, value in module.state_dict().items() if key not in learned}
        if state:
            found[name] = state
    return found


def load_module_states(model: nn.Module, states: dict[str, State]) -> None:
    """Loads what :func:`module_states` returned into the modules that still exist.

    Args:
        model: the model that contains the modules.
        states: the state dicts by the modules' names.
    """
    modules = dict(model.named_modules())
    for name, state in states.items():
        if name in modules:
            modules[name].load_state_dict(state, strict=False)
