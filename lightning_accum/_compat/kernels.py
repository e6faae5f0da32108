"""Private names of torch about kernels, and the versions of tensors."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor


def foreach_subtract(values: list[Tensor], others: list[Tensor]) -> list[Tensor]:
    """Subtracts lists of tensors element by element, in few kernels.

    Public functions subtract one pair at a time.

    Example:
        >>> foreach_subtract([torch.ones(1), torch.ones(2)], [torch.ones(1), torch.zeros(2)])
        [tensor([0.]), tensor([1., 1.])]
    """
    return list(torch._foreach_sub(values, others))


def foreach_add_call(targets: list[Tensor], values: list[Tensor], alpha: float) -> partial[None]:
    """Returns a call that adds ``alpha · values`` to the targets, in place and in few kernels.

    The call runs no line of Python, so that an interrupt cannot strike in between. Public functions
    add to one tensor at a time.

    Example:
        >>> target = torch.ones(1)
        >>> _ = foreach_add_call([target], [torch.ones(1)], 0.5)()
        >>> target
        tensor([1.5000])
    """
    return partial(torch._foreach_add_, targets, values, alpha=alpha)


def foreach(name: str) -> Any:
    """Returns the operation that applies ``name`` to each tensor of a list, in few kernels.

    ``torch.optim`` itself steps by these operations. They are documented as a beta and have
    private names only, such as ``torch._foreach_add_``.

    Args:
        name: name of the operation on one tensor, such as ``"add_"``.

    Example:
        >>> counts = [torch.zeros(()), torch.ones(())]
        >>> _ = foreach("add_")(counts, 1)
        >>> counts
        [tensor(1.), tensor(2.)]
    """
    return getattr(torch, f"_foreach_{name}")


def fused_adam(decoupled: bool) -> Any:
    """Returns torch's kernel that steps lists of tensors by Adam, in one pass over memory.

    ``torch.optim.adam.adam(..., fused=True)`` calls the kernel too, but sorts the tensors by
    device and dtype at every call, and counts each tensor's steps in a tensor of its own.

    Args:
        decoupled: whether the weight decay is AdamW's.
    """
    return torch._fused_adamw_ if decoupled else torch._fused_adam_


def version(tensor: torch.Tensor) -> int:
    """Returns how often a tensor was written to in place.

    Args:
        tensor: any tensor that is not an inference tensor.
    """
    return tensor._version
