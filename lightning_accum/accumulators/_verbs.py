"""Accumulators of one's own: `forward` adds, `calculate` computes, `reset` forgets."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from lightning_accum.accumulators._values import copied

_VERBS = ("forward", "calculate", "reset")


def has_verbs(thing: Any) -> bool:
    """Whether an object has all three."""
    return all(callable(getattr(thing, verb, None)) for verb in _VERBS)


def take_verbs(cls: Any, base: Any) -> None:
    """Has ``forward``, ``calculate`` and ``reset`` of a class do what all others do."""
    verbs = [getattr(cls, name) for name in _VERBS]
    forward, calculate, own_reset = verbs
    if calculate is base.calculate or own_reset is base.reset:
        raise TypeError(
            f"Accumulator `{cls.__name__}` should define `forward(data)`, which adds to"
            " `self.data`, `calculate()`, which returns the result, and `reset()`. Found"
            f" {[verb.__name__ for verb in verbs if verb not in vars(base).values()]}: define all"
            " three, or `update` and `compute` as for any torchmetrics metric."
        )

    @functools.wraps(forward)
    def update(self: Any, *args: Any, **kwargs: Any) -> None:
        with torch.no_grad():
            forward(self, *args, **kwargs)

    @functools.wraps(calculate)
    def compute(self: Any) -> Any:
        return copied(calculate(self))

    @functools.wraps(own_reset)
    def reset(self: Any) -> None:
        base.reset(self)
        own_reset(self)

    cls.update, cls.compute, cls.reset = update, compute, reset
    cls.forward, cls.calculate, cls._by_verbs = base.forward, base.calculate, True


def check_update(cls: Any, base: Any) -> None:
    """Raises a TypeError for an accumulator that does not say how it adds a value."""
    if cls.update is base.update:
        raise TypeError(
            f"Accumulator `{cls.__name__}` should define `forward`, `calculate` and `reset`, or"
            " `update` and `compute`. Found neither."
        )


def only_one(cls: Any, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The only part of a stream, where nobody knows how to combine several."""
    if len(parts) == 1:
        return parts[0]
    raise TypeError(
        f"Accumulator `{cls.__name__}` should know how to combine what several have seen. Found"
        " only `forward`, `calculate` and `reset`: pass `sync_on_compute=False` to"
        " `super().__init__`, and every process computes its own."
    )
