"""Private names of torch about kernels, and the versions of tensors."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.optim import optimizer as optimizers

from lightning_accum._compat.fallback import lacking


def foreach(name: str) -> Any:
    """Returns the operation that applies ``name`` to each tensor of a list, in few kernels.

    ``torch.optim`` itself steps by these operations. They are documented as a beta and have
    private names only, such as ``torch._foreach_add_``. Calling one runs no line of Python, so that
    an interrupt cannot strike between two tensors.

    Args:
        name: name of the operation on one tensor, such as ``"add_"``.

    Example:
        >>> counts = [torch.zeros(()), torch.ones(())]
        >>> _ = foreach("add_")(counts, 1)
        >>> counts
        [tensor(1.), tensor(2.)]
    """
    try:
        return getattr(torch, f"_foreach_{name}")
    except AttributeError as error:
        raise lacking("torch", error) from error


def fused_adam(decoupled: bool) -> Any:
    """Returns torch's kernel that steps lists of tensors by Adam, in one pass over memory.

    ``torch.optim.adam.adam(..., fused=True)`` calls the kernel too, but sorts the tensors by
    device and dtype at every call, and counts each tensor's steps in a tensor of its own.

    Args:
        decoupled: whether the weight decay is AdamW's.
    """
    try:
        return torch._fused_adamw_ if decoupled else torch._fused_adam_
    except AttributeError as error:
        raise lacking("torch", error) from error


def step_is_watched(optimizer: torch.optim.Optimizer) -> bool:
    """Returns whether anything sees the steps of an optimizer: hooks, a scheduler, a profiler.

    torch wraps ``step`` of each optimizer, to call the hooks and to tell the profiler, and a
    scheduler wraps it once more; neither says in public whether there is anything to call.

    Args:
        optimizer: any optimizer.
    """
    return bool(
        optimizer._optimizer_step_pre_hooks
        or optimizer._optimizer_step_post_hooks
        or optimizers._global_optimizer_pre_hooks
        or optimizers._global_optimizer_post_hooks
        or "step" in vars(optimizer)
        or torch.autograd.profiler._is_profiler_enabled
    )


def version(tensor: torch.Tensor) -> float:
    """Returns how often a tensor was written to in place; NaN for one that does not count it.

    Args:
        tensor: any tensor. Those of inference mode do not count, and NaN equals no other version.
    """
    return math.nan if tensor.is_inference() else tensor._version
