"""The monitor of an attribute of a module."""

from __future__ import annotations

from typing import Any, final

from torch import nn

from lightning_accum.observe.monitor import Monitor
from lightning_accum.observe.paths import find_attribute


@final
class StateMonitor(Monitor):
    """Watches an attribute of a module, after the module has run.

    See :class:`Monitor` for the arguments; here ``attr`` leads to the attribute.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> norm = nn.BatchNorm1d(1, momentum=1.0)
        >>> monitor = StateMonitor(norm, "running_mean")
        >>> _ = norm(torch.tensor([[1.0], [3.0]]))
        >>> monitor.peek()
        tensor([2.])
    """

    def _resolve(self, module: Any, attr: str) -> tuple[nn.Module, str]:
        return find_attribute(module, attr)

    def _value(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Any:
        return getattr(module, self.name)
