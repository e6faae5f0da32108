"""The monitor of what a call of a module changes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lightning_accum.observe.monitor import Handles, Monitor, _Hook, attribute


class DifferenceMonitor(Monitor):
    r"""Watches what a call of a module changes in one of its attributes.

    .. math::
        \Delta y = y_\text{after} - y_\text{before}

    A call before which the attribute is ``None``, as a state may be before its first step, is not
    recorded. Booleans and unsigned integers are subtracted as float32.

    Args:
        module: as in :class:`Monitor`.
        attr: dotted path from ``module`` to the attribute.
        reducer: as in :class:`Monitor`, and so are the others.
        **options: those of :class:`Monitor`.

    Raises:
        ValueError: if a call changes the attribute's shape.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> norm = nn.BatchNorm1d(1, momentum=0.5)
        >>> monitor = DifferenceMonitor(norm, "running_mean")
        >>> _ = norm(torch.tensor([[1.0], [3.0]]))
        >>> monitor.peek()
        tensor([1.])
    """

    _before: Tensor | None = None

    def _resolve(self, module: Any, attr: str) -> tuple[nn.Module, str]:
        return attribute(module, attr)

    def _hook(self, module: nn.Module, hook: _Hook) -> Handles:
        return module.register_forward_pre_hook(hook), module.register_forward_hook(hook)

    def _seen(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Any:
        return getattr(module, self.name)

    def _observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        value = self._seen(module, args, rest)
        if not rest:  # the module has not run yet
            self._before = None if value is None else self._pick(value).detach().clone()
            return
        before, self._before = self._before, None
        if before is None:
            return
        after = self._pick(value).detach()
        if after.shape != before.shape:
            raise ValueError(
                f"Attribute `{self.name}` should keep its shape in a call. Found"
                f" {tuple(before.shape)} before and {tuple(after.shape)} after it: reset the"
                " module's state between batches."
            )
        if not after.dtype.is_signed:
            before, after = before.to(torch.float32), after.to(torch.float32)
        self._take(after - before)
