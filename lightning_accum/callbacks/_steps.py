"""Sees what the steps of optimizers do to parameters."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.hooks import RemovableHandle

from lightning_accum._compat import version
from lightning_accum.functional.statistics import Change, measure_change

Wanted = Callable[[Optimizer], Sequence[Tensor]]
Measured = Callable[[Optimizer, Sequence[Tensor], Sequence[Change]], None]


class StepWatch:
    """Copies parameters as any optimizer's step begins, and compares them as it ends.

    Args:
        wanted: which parameters to measure in a step that begins; where there are none, the step
            is left alone.
        measured: is given those parameters and their changes as the step ends.
    """

    def __init__(self, wanted: Wanted, measured: Measured) -> None:
        self._wanted = wanted
        self._measured = measured
        self._begun: dict[int, _Copies] = {}
        me = weakref.ref(self)

        def begin(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
            watch = me()
            return None if watch is None else watch._begin(optimizer, args, kwargs)

        def end(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            watch = me()
            if watch is not None:
                watch._end(optimizer, args, kwargs)

        handles = [register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)]
        # They are torch's, of all optimizers: they must not outlive this, wherever it is dropped.
        self._remove = weakref.finalize(self, _remove, handles)
        self._remove.atexit = False

    def remove(self) -> None:
        """Watches no more."""
        self._remove()
        self._begun = {}

    def _begin(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        self._begun.pop(id(optimizer), None)  # of a step that raised
        params = self._wanted(optimizer)
        if not params:
            return None
        copies = self._begun[id(optimizer)] = _Copies(params)
        if kwargs.get("closure") is not None:
            return args, {**kwargs, "closure": _Closure(kwargs["closure"], copies)}
        if len(args) > 1 and args[1] is not None:  # behind the optimizer itself
            return (args[0], _Closure(args[1], copies), *args[2:]), kwargs
        return None

    def _end(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        copies = self._begun.pop(id(optimizer), None)
        if copies is not None:
            pairs = zip(copies.before, copies.params, strict=True)
            changes = [measure_change(before, param.detach()) for before, param in pairs]
            self._measured(optimizer, copies.params, changes)


def _remove(handles: Sequence[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


class _Copies:
    """Parameters, and what they were."""

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = params
        self.before = [param.detach().clone() for param in params]


class _Closure:
    """A closure, whose own writes to parameters are not counted as the optimizer's.

    Under Lightning the whole training step runs in it, and may normalize weights, for example.
    Only the first call is looked at: later ones lie in the midst of the optimizer's work.
    """

    def __init__(self, closure: Callable[[], Any], copies: _Copies) -> None:
        self._closure = closure
        self._copies: _Copies | None = copies

    def __call__(self) -> Any:
        copies, self._copies = self._copies, None
        if copies is None:
            return self._closure()
        versions = [version(param) for param in copies.params]
        result = self._closure()
        for i, (param, before) in enumerate(zip(copies.params, versions, strict=True)):
            if version(param) != before:
                copies.before[i] = param.detach().clone()
        return result
