"""The tensors in arguments, results and modules, and copies of modules that keep such tensors."""

import copy
from collections.abc import Iterator
from typing import Any, TypeVar

from torch import Tensor, nn

ModuleT = TypeVar("ModuleT", bound=nn.Module)


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yields the tensors in arguments or results, which may be nested tuples, lists or dicts."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for each in values:
            yield from tensors_in(each)
    elif isinstance(values, dict):
        yield from tensors_in([*values.values()])


def shares_memory(tensor: Tensor, other: Tensor) -> bool:
    """Returns whether a tensor lies in the memory of another one."""
    try:
        place = tensor.untyped_storage().data_ptr()
        return place != 0 and place == other.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor without storage
        return False


def copied(module: ModuleT) -> ModuleT:
    """Returns a deep copy of a module, in which tensors are detached that gradients reach."""
    kept = (each for owner in module.modules() for each in tensors_in(vars(owner)))
    results = (each for each in kept if not isinstance(each, nn.Parameter))
    return copy.deepcopy(module, {id(each): each.detach().clone() for each in results})
