"""Measures how each step of any optimizer changes parameters."""

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
    """Copies parameters when any optimizer's step begins, and compares them when it ends.

    Args:
        wanted: returns the parameters to measure in a step that begins; a step without any is not
            measured.
        measured: receives those parameters and their changes when the step ends.
    """

    def __init__(self, wanted: Wanted, measured: Measured) -> None:
        self._wanted = wanted
        self._measured = measured
        self._begun: dict[int, Copies] = {}
        me = weakref.ref(self)

        def begin(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
            watch = me()
            return None if watch is None else watch._begin(optimizer, args, kwargs)

        def end(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            watch = me()
            if watch is not None:
                watch._end(optimizer)

        handles = [register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)]
        # The hooks are global in torch: they must not outlive this object, however it is dropped.
        self._remove = weakref.finalize(self, _remove, handles)
        self._remove.atexit = False

    def remove(self) -> None:
        """Removes the hooks."""
        self._remove()
        self._begun = {}

    def _begin(self, optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        self._begun.pop(id(optimizer), None)  # of a step that raised an error
        params = self._wanted(optimizer)
        if not params:
            return None
        copies = self._begun[id(optimizer)] = Copies(params)
        if kwargs.get("closure") is not None:
            return args, {**kwargs, "closure": copies.after(kwargs["closure"])}
        if len(args) > 1 and args[1] is not None:  # the first argument is the optimizer
            return (args[0], copies.after(args[1]), *args[2:]), kwargs
        return None

    def _end(self, optimizer: Optimizer) -> None:
        copies = self._begun.pop(id(optimizer), None)
        if copies is not None:
            self._measured(optimizer, copies.params, copies.changes())


def _remove(handles: Sequence[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


class Copies:
    """Copies of parameters, to compare with what they become.

    Args:
        params: the parameters.
    """

    def __init__(self, params: Sequence[Tensor]) -> None:
        self.params = params
        self._before = [param.detach().clone() for param in params]

    def changes(self) -> list[Change]:
        """Returns how the parameters changed since they were copied."""
        pairs = zip(self._before, self.params, strict=True)
        return [measure_change(before, param.detach()) for before, param in pairs]

    def after(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Returns a closure that copies again the parameters to which ``closure`` itself writes.

        Under Lightning the training step runs in it, which may normalize weights, for example. Only
        the first call copies: later calls come in the middle of the optimizer's own work.
        """
        first = [True]

        def call() -> Any:
            if not first:
                return closure()
            first.clear()
            versions = [version(param) for param in self.params]
            result = closure()
            for i, (param, earlier) in enumerate(zip(self.params, versions, strict=True)):
                if version(param) != earlier:
                    self._before[i] = param.detach().clone()
            return result

        return call
