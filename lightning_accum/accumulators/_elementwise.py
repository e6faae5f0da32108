"""The base of accumulators whose states are tensors of the values' shape."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lightning_accum.accumulators._base import State, StreamAccumulator
from lightning_accum.accumulators._values import check_shape, wide


class ElementWise(StreamAccumulator):
    """An accumulator that keeps the values' shape, which the first value sets.

    Args:
        states: the states before any value, by name.
        **kwargs: passed to :class:`torchmetrics.Metric`.
    """

    # What integers are streamed in; as floats when missing.
    integers: torch.dtype | None = None

    def __init__(self, states: State, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # torchmetrics lets metrics of a collection share their states where names and, after the
        # first update, values are equal; before 1.7 it looks at the first state alone, which thus
        # has to tell apart what is to be told apart.
        for name, default in {**states, "updates": torch.tensor(0)}.items():
            self.add_state(name, default, persistent=True)

    @property
    def updates(self) -> Tensor:
        """How many values were added: the metric's own count as a state, to be saved and merged."""
        return torch.tensor(self._update_count)

    @updates.setter
    def updates(self, value: Tensor) -> None:
        self._update_count = int(value)

    def _value(self, value: Any) -> Tensor:
        return wide(value, self.device, self.integers)

    def _check_shape(self, value: Tensor, before: Tensor) -> None:
        if value.shape != before.shape and self._update_count:
            check_shape(type(self).__name__, value, before)

    def _put(self, **states: Tensor) -> None:
        # A module's own `__setattr__` costs more than an addition of two scalars.
        self.__dict__.update(states)

    def _is_empty(self) -> bool:
        return self._update_count == 0

    def _merged(self, parts: Sequence[State]) -> State:
        updates = [int(part["updates"]) for part in parts]
        held = [part for part, count in zip(parts, updates, strict=True) if count]
        if not held:
            return dict(parts[0])
        own = self._copy_state_dict()
        held = [{name: value.to(own[name].device) for name, value in p.items()} for p in held]
        shapes = {name: {tuple(part[name].shape) for part in held} for name in self._shaped()}
        for name, found in shapes.items():
            if len(found) > 1:
                raise ValueError(
                    f"State `{name}` should have one shape in all parts that are merged. Found"
                    f" shapes {sorted(found)}: give every process values of the same shape."
                )
        return {**self._combined(held), "updates": torch.tensor(sum(updates))}

    def _shaped(self) -> list[str]:
        """The states that have the values' shape."""
        return [name for name in self._defaults if name != "updates"]

    @abstractmethod
    def _combined(self, parts: list[State]) -> State:
        """The state of one stream that is these in order, none of them empty."""

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Any:
        return super()._apply(fn, [*exclude_state, "updates"])
