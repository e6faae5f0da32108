"""Nested values, compared bit by bit."""

from __future__ import annotations

from typing import Any

from torch import Tensor, equal
from torch.utils._pytree import keystr, tree_flatten_with_path


def differences(one: Any, other: Any) -> list[str]:
    """Where two nested values differ; NaN is like NaN."""
    left, right = ({keystr(k): v for k, v in tree_flatten_with_path(x)[0]} for x in (one, other))
    every = left.keys() | right.keys()
    return [at for at in every if not (at in left and at in right and same(left[at], right[at]))]


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and equal(one.nan_to_num(7), other.nan_to_num(7))
    return type(one) is type(other) and bool(one == other)
