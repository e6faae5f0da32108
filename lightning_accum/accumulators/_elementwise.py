"""The bases of accumulators whose states are tensors of the values' shape."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor

from lightning_accum.accumulators._base import State, StreamAccumulator
from lightning_accum.accumulators._values import STREAMED, check_shape, double, wide


class ElementWise(StreamAccumulator):
    """An accumulator that keeps the values' shape, which the first value sets.

    Args:
        states: the states before any value, by name; the first has the values' shape.
        **kwargs: passed to :class:`torchmetrics.Metric`.
    """

    # The dtype of integers and booleans; by default they become floats of double precision.
    integers: torch.dtype | None = None
    # Names of the states that are never complex.
    real: tuple[str, ...] = ()

    def __init__(self, states: State, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # In a collection, torchmetrics lets metrics share states that have equal names and, after
        # the first update, equal values. Before 1.7 it compares the first state only, so the first
        # state has to differ if the metrics do.
        for name, default in {**states, "updates": torch.tensor(0)}.items():
            self.add_state(name, default, persistent=True)

    @property
    def updates(self) -> Tensor:
        """The number of values added: the count of the metric as a state, saved and merged."""
        return torch.tensor(self._update_count)

    @updates.setter
    def updates(self, value: Tensor) -> None:
        self._update_count = int(value)

    def _value(self, value: Any) -> Tensor:
        return wide(value, self.device, self.integers)

    def _check_shape(self, value: Tensor, before: Tensor) -> None:
        if value.shape != before.shape and self._update_count:
            check_shape(type(self).__name__, value, before)

    def _is_empty(self) -> bool:
        return self._update_count == 0

    def _merged(self, parts: Sequence[State]) -> State:
        updates = [int(part["updates"]) for part in parts]
        held = [part for part, count in zip(parts, updates, strict=True) if count]
        if not held:
            return dict(parts[0])
        held = [{name: _on(self.device, state) for name, state in part.items()} for part in held]
        for name in self._shaped():
            found = {tuple(getattr(part[name], "shape", ())) for part in held}
            if len(found) > 1:
                raise ValueError(
                    f"State `{name}` should have one shape in all parts that are merged. Found"
                    f" shapes {sorted(found)}: give every process values of the same shape."
                )
        return {**self._combined(held), "updates": torch.tensor(sum(updates))}

    def _shaped(self) -> list[str]:
        """Returns the names of the states that have the values' shape in all parts."""
        return list(self._defaults)[:1]

    @abstractmethod
    def _combined(self, parts: list[State]) -> State:
        """Returns the state of one stream that consists of these in order, none of them empty."""

    def _check_states(self, states: State, names: list[str]) -> None:
        super()._check_states(states, names)
        count = states["updates"]
        if count.numel() != 1 or count.is_floating_point() or int(count) < 0:
            raise ValueError(f"state `updates` should be a count. Found {count.tolist()}.")
        held = {name: states[name] for name in self._defaults if name not in ("updates", "like")}
        shapes = {name: tuple(getattr(state, "shape", ())) for name, state in held.items()}
        first = shapes[self._shaped()[0]] if int(count) else ()
        if any(_joined(shape, first) != first for shape in shapes.values()):
            raise ValueError(f"states should have the values' shape. Found shapes {shapes}.")

    def _check_state(self, name: str, state: Any, default: Any) -> None:
        kinds = "real numbers" if name in (*self.real, "updates") else "numbers"
        fits = isinstance(state, Tensor) and state.dtype in STREAMED
        if not fits or (state.is_complex() and kinds == "real numbers"):
            raise ValueError(
                f"state `{name}` should be a tensor of {kinds}. Found"
                f" `{getattr(state, 'dtype', type(state).__name__)}`."
            )

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Any:
        return super()._apply(fn, [*exclude_state, "updates"])


class Summed(ElementWise):
    """An accumulator of sums, in double precision if the device has it.

    Args:
        states: the states before any value, by name; the first has the values' shape.
        like: dtype of the result before any value, which the dtypes of values widen.
        **kwargs: passed to :class:`torchmetrics.Metric`.
    """

    like: Tensor

    def __init__(self, states: State, like: torch.dtype = torch.float32, **kwargs: Any) -> None:
        # Results have the dtype of the values, which the wider states do not tell.
        super().__init__({**states, "like": torch.empty(0, dtype=like)}, **kwargs)

    def _entering(self, value: Any) -> tuple[Tensor, Tensor, bool]:
        """Returns a value in the dtype of sums, the new ``like``, and whether both are as wide."""
        tensor, like = self._value(value), self.like
        if tensor.dtype != like.dtype:
            like = like.new_empty(0, dtype=torch.promote_types(like.dtype, tensor.dtype))
        tensor = tensor.to(double(like.dtype, tensor.device))
        return tensor, like, _is_narrow(tensor, like)

    def _merged(self, parts: Sequence[State]) -> State:
        likes = [part["like"].dtype for part in parts]
        like = self.like.new_empty(0, dtype=reduce(torch.promote_types, likes))
        return {**super()._merged(parts), "like": like}

    def _check_states(self, states: State, names: list[str]) -> None:
        super()._check_states(states, names)
        like, held = states["like"], states[self._shaped()[0]]
        if like.shape != (0,):
            raise ValueError(f"state `like` should be empty. Found {like.tolist()}.")
        if isinstance(held, Tensor) and _kind(held) != _kind(like):
            raise ValueError(f"state `like` should be like {held.dtype}. Found {like.dtype}.")


def _is_narrow(value: Tensor, like: Tensor) -> bool:
    return value.dtype == like.dtype and value.dtype != torch.int64


def _kind(tensor: Tensor) -> tuple[bool, bool]:
    return tensor.is_floating_point(), tensor.is_complex()


def _on(device: torch.device, state: Any) -> Any:
    return state.to(device) if isinstance(state, Tensor) else state


def _joined(first: Sequence[int], second: Sequence[int]) -> tuple[int, ...] | None:
    try:
        return tuple(torch.broadcast_shapes(first, second))
    except RuntimeError:
        return None
