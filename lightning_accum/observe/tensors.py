"""The tensors in arguments and results, and whether two of them share memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor


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
