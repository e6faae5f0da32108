"""Tensors that come and go: the one base of everything that keeps transient state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class StateModule(nn.Module):
    """Module with named transient tensors, whose shapes are not known in advance.

    The tensors live in ``self._state`` and are neither parameters nor buffers: no optimizer finds
    them, DDP does not broadcast them, and they may be ``None`` until something has run. They move
    with ``.to()``, are copied and pickled with the module, and stand in the state dict under one
    fixed key, so that a state loads into a fresh module before its first forward.
    """

    _state: dict[str, Tensor | None]

    def __init__(self) -> None:
        super().__init__()
        self._state = {}

    def _moved(self, fn: Callable[[Tensor], Tensor], tensor: Tensor) -> Tensor:
        """What ``.to()`` makes of one state tensor; a subclass may keep a wider dtype."""
        return fn(tensor)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> StateModule:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._state = {
            name: None if tensor is None else self._moved(fn, tensor)
            for name, tensor in self._state.items()
        }
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """Returns the transient tensors, for the state dict."""
        return {k: v if v is None else v.detach().clone() for k, v in self._state.items()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Takes the transient tensors from a state dict, on this module's own copies."""
        self._state = {
            name: tensor.detach().clone() if isinstance(tensor, torch.Tensor) else None
            for name, tensor in state.items()
        }
