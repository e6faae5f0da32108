"""The base of accumulators that keep the values themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor

from lightning_accum.accumulators._base import State, StreamAccumulator
from lightning_accum.accumulators._copies import Moves


class Keeping(StreamAccumulator):
    """An accumulator of values in order.

    The values are extra state rather than a state of torchmetrics, which compares the shapes of
    elements in a collection, moves all elements as tensors, and so rejects numbers.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.
    """

    values: list[Any]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.values = []

    def reset(self) -> None:
        """Forgets all values."""
        super().reset()
        # A new list, since a result of `compute` or a merged state may refer to the old one.
        self.values = []

    def get_extra_state(self) -> dict[str, list[Any]]:
        """Returns the values, for the state dict."""
        return {"values": apply_to_collection(self.values, Tensor, torch.clone)}

    def set_extra_state(self, state: dict[str, list[Any]]) -> None:
        """Takes the values from a state dict, on this metric's device."""
        self._take_states({"values": apply_to_collection(state["values"], Tensor, self._loaded)})
        self._renew()

    def _check_states(self, states: State, names: list[str]) -> None:
        super()._check_states(states, names)
        state = states["_extra_state"]
        if not isinstance(state, dict) or not isinstance(state.get("values"), list):
            raise ValueError(
                f"its state should be a dictionary with a list `values`. Found {state!r}."
            )

    def _loaded(self, tensor: Tensor) -> Tensor:
        return self._owned(tensor.to(self.device))

    def _owned(self, tensor: Tensor) -> Tensor:
        """Returns a copy without a graph."""
        return tensor.detach().clone()

    def _take_states(self, states: State) -> None:
        self.values = list(states["values"])
        self._update_count = max(self._update_count, len(self.values))

    def _copy_state_dict(self) -> State:
        return {"values": list(self.values)}

    def _merged(self, parts: Sequence[State]) -> State:
        return {"values": [value for part in parts for value in part["values"]]}

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = ()) -> Any:
        super()._apply(fn, exclude_state)
        self.values = apply_to_collection(self.values, Tensor, Moves(fn))
        return self
