"""What every process has of its own, in one checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch import nn

from lightning_accum.distributed.world import is_first, processes

State = dict[str, Any]


def of_the_others(own: Callable[[], State]) -> list[State] | None:
    """What the other processes have, by rank, in the first of them; ``None`` in the others.

    To be called in all of them.

    Args:
        own: gives tensors and builtins; not called in the first, which has its own already.
    """
    if not is_first():
        dist.gather_object(own())
        return None
    found: list[Any] = [None] * processes()
    dist.gather_object(None, found)
    return found[1:]


def module_states(model: nn.Module) -> dict[str, State]:
    """What modules of this package keep beside parameters: potentials, thresholds, streams, counts.

    Args:
        model: in which they are.

    Returns:
        State dicts by the modules' names, those that hold anything.
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


def take_module_states(model: nn.Module, states: dict[str, State]) -> None:
    """Gives modules what :func:`module_states` found; those that are no longer there are left out.

    Args:
        model: in which they are.
        states: by name.
    """
    modules = dict(model.named_modules())
    for name, state in states.items():
        if name in modules:
            modules[name].load_state_dict(state, strict=False)
