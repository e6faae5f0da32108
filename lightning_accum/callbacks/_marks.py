"""Marks of parameters, which tell whether anything has changed them."""

from __future__ import annotations

from typing import TypeAlias

from torch import Tensor

from lightning_accum._compat import version
from lightning_accum.distributed.shards import local
from lightning_accum.functional.numbers import Fingerprint, fingerprint, same_fingerprints

Mark: TypeAlias = tuple[float, Fingerprint]
"""How often a tensor was written to, with its fingerprint."""


def mark(param: Tensor) -> Mark:
    """Returns the mark of a parameter, or of this process's shard of it."""
    return version(param), fingerprint(local(param.detach()))


def has_changed(before: Mark, now: Mark) -> bool:
    """Returns whether a parameter was written to, or has other values; waits for the device."""
    return before[0] != now[0] or not same_fingerprints(before[1], now[1])
