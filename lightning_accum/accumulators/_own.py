"""Accumulators that have the verbs, and are not of this package."""

from __future__ import annotations

from typing import Any

from lightning_accum.accumulators._base import StreamAccumulator


class Own(StreamAccumulator):
    """An object that adds with ``forward``, computes with ``calculate``, and resets.

    Args:
        accumulator: the object.
    """

    def __init__(self, accumulator: Any) -> None:
        self.__dict__["accumulator"] = None
        super().__init__()
        self.accumulator = accumulator

    @property
    def data(self) -> Any:
        """What the object has seen."""
        return getattr(self.accumulator, "data", None)

    @data.setter
    def data(self, value: Any) -> None:
        if hasattr(self.accumulator, "data"):
            self.accumulator.data = value

    def forward(self, *args: Any, **kwargs: Any) -> None:
        """Adds a value."""
        self.accumulator.forward(*args, **kwargs)

    def calculate(self) -> Any:
        """The object's result."""
        return self.accumulator.calculate()

    def reset(self) -> None:
        """Has the object forget."""
        self.accumulator.reset()
