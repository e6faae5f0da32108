"""The monitors of a module's input and of its output."""

from __future__ import annotations

from typing import Any, final

from torch import nn
from torch.utils.hooks import RemovableHandle

from lightning_accum.observe.hooks import Hook
from lightning_accum.observe.monitor import Monitor


@final
class InputMonitor(Monitor):
    """Watches the input of a module, before the module runs.

    See :class:`Monitor` for the arguments.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> fc = nn.Linear(2, 3)
        >>> monitor = InputMonitor(fc)
        >>> _ = fc(torch.ones(1, 2))
        >>> monitor.peek()
        tensor([[1., 1.]])
    """

    def _add_hooks(self, module: nn.Module, hook: Hook) -> tuple[RemovableHandle, ...]:
        return (module.register_forward_pre_hook(hook, with_kwargs=True),)

    def _value(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Any:
        (kwargs,) = rest
        return args or kwargs


@final
class OutputMonitor(Monitor):
    """Watches the output of a module.

    See :class:`Monitor` for the arguments.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> relu = nn.ReLU()
        >>> monitor = OutputMonitor(relu)
        >>> _ = relu(torch.tensor([-1.0, 1.0]))
        >>> monitor.peek()
        tensor([0., 1.])
    """

    def _value(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Any:
        (result,) = rest
        return result
