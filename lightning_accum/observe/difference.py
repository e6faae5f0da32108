"""The monitor of the change that a call of a module makes to an attribute."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum.observe.hooks import Hook
from lightning_accum.observe.monitor import Monitor
from lightning_accum.observe.paths import find_attribute


@final
class DifferenceMonitor(Monitor):
    r"""Watches how much a call of a module changes one of the module's attributes.

    .. math::
        \Delta y = y_\text{after} - y_\text{before}

    A call is not recorded if the attribute is ``None`` before it, as a state may be before its
    first step. Booleans and unsigned integers are subtracted as float32.

    Args:
        module: as in :class:`Monitor`.
        attr: dotted path from ``module`` to the attribute.
        reducer: as in :class:`Monitor`.
        **options: the other arguments of :class:`Monitor`.

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
        return find_attribute(module, attr)

    def _add_hooks(self, module: nn.Module, hook: Hook) -> tuple[RemovableHandle, ...]:
        return module.register_forward_pre_hook(hook), module.register_forward_hook(hook)

    def _value(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Any:
        return getattr(module, self.name)

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Copies the attribute before a call, and records its change after the call."""
        value = self._value(module, args, rest)
        if not rest:  # torch passes a result only after the call
            self._before = None if value is None else self._pick(value).clone()
            return
        before, self._before = self._before, None
        if before is None:
            return
        after = self._pick(value)
        if after.shape != before.shape:
            raise ValueError(
                f"Attribute `{self.name}` should keep its shape in a call. Found"
                f" {tuple(before.shape)} before and {tuple(after.shape)} after it: reset the"
                " module's state between batches."
            )
        if not after.dtype.is_signed:
            before, after = before.to(torch.float32), after.to(torch.float32)
        self._record(after - before)
