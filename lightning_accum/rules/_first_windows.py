"""Watches, in the first windows of a loop by hand, whether a neuron of any kind is reset."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from lightning_accum.cells.kept_state import KeptState
from lightning_accum.cells.tally import APART
from lightning_accum.observe.hooks import Hook


class FirstWindows:
    """Notes whether a neuron begins each of the first windows in the state that the last one left.

    Between two windows it has a hook on the neuron, which the next call removes. A copy, or a rule
    that is loaded, does not go on with the watch.
    """

    def __init__(self) -> None:
        self._state: KeptState | None = None
        self._handle: RemovableHandle | None = None
        self._kept = False  # whether this window began in the state that the last one left
        self._windows = 0
        self._ended = False

    def went_on(self, neuron: nn.Module, whole: bool, passed: bool) -> bool:
        """Returns, at the end of a window, whether the neuron began it as the last one left it.

        Args:
            neuron: the neuron.
            whole: whether it takes whole sequences.
            passed: whether traces passed into this window; then it is one of a stream.
        """
        if self._ended:
            return False
        self._windows += 1
        kept, self._kept = self._kept, False
        called = self._handle is None
        if passed or not called or (self._windows > 2 and not kept) or self._windows > APART + 1:
            self.end()
            return kept and not passed
        if self._state is None:
            self._state = KeptState(whole)
        self._state.ended(neuron)
        self._handle = neuron.register_forward_pre_hook(Hook(self, neuron), with_kwargs=True)
        return kept

    def is_recording(self, module: nn.Module) -> bool:
        """Returns whether the neuron's calls are recorded; code that is compiled is not watched."""
        return module.training and not torch.compiler.is_compiling()

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Compares the state at the first call of a window with that after the last window."""
        self._remove()
        if self._state is not None:
            surely = self._windows == APART + 1
            self._kept = self._state.begins(module, args, rest[0], surely)

    def end(self) -> None:
        """Ends the watch, and removes its hook."""
        self._remove()
        self._state, self._ended = None, True

    def _remove(self) -> None:
        if self._handle is not None:
            self._handle.remove()
        self._handle = None

    def __del__(self) -> None:
        self._remove()

    def __deepcopy__(self, memo: dict[int, Any]) -> FirstWindows:
        return _ended()

    def __reduce__(self) -> tuple[Any, ...]:
        return _ended, ()


def _ended() -> FirstWindows:
    watch = FirstWindows()
    watch.end()
    return watch
