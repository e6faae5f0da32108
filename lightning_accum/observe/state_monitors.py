"""The monitors of a module's states: of one, of its change, and of several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._checks import names_in
from lightning_accum.observe.hooks import Hook
from lightning_accum.observe.monitor import Monitor
from lightning_accum.observe.paths import find_attribute
from lightning_accum.observe.reducers.base import Reducer


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
            self._before = None if value is None else _tensor(self, value).clone()
            return
        before, self._before = self._before, None
        if before is None:
            return
        after = _tensor(self, value)
        if after.shape != before.shape:
            raise ValueError(
                f"Attribute `{self.name}` should keep its shape in a call. Found"
                f" {tuple(before.shape)} before and {tuple(after.shape)} after it: reset the"
                " module's state between batches."
            )
        if not after.dtype.is_signed:
            before, after = before.to(torch.float32), after.to(torch.float32)
        self._record(after - before)


@final
class MultiStateMonitor(Monitor):
    """Watches several attributes of a module at once, after the module has run.

    The reducer gets them stacked along a new last dimension, ``[..., len(names)]`` in the order of
    ``names``, so that batch and time stay where rules and recorders look for them. Attributes of
    different shapes need a :class:`StateMonitor` each.

    Args:
        module: as in :class:`Monitor`.
        attr: dotted path from ``module`` to the module that is watched; empty for ``module``.
        reducer: as in :class:`Monitor`.
        names: dotted paths of the attributes, from the watched module.
        **options: the other arguments of :class:`Monitor`.

    Raises:
        ValueError: if ``names`` is empty, or when the attributes differ in shape.
        AttributeError: if a path does not lead to an attribute.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> norm = nn.BatchNorm1d(2, momentum=1.0)
        >>> monitor = MultiStateMonitor(norm, names=("running_mean", "running_var"))
        >>> _ = norm(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        >>> monitor.peek()  # a row for each channel: its mean, its variance
        tensor([[2., 2.],
                [5., 0.]])
    """

    def __init__(
        self,
        module: nn.Module,
        attr: str = "",
        reducer: Reducer | None = None,
        *,
        names: Sequence[str],
        **options: Any,
    ) -> None:
        if isinstance(names, str) or not names_in("names", names):
            raise ValueError(
                "Argument `names` should be a sequence of at least one attribute's path."
                f" Found `{names = }`."
            )
        self.names = tuple(names)  # before the base class, which calls `_resolve`
        super().__init__(module, attr, reducer, **options)

    def _resolve(self, module: Any, attr: str) -> tuple[nn.Module, str]:
        watched, _ = super()._resolve(module, attr)
        for name in self.names:
            find_attribute(watched, name)
        return watched, ", ".join(self.names)

    def _value(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Tensor:
        owners = [find_attribute(module, path) for path in self.names]
        found = [_tensor(self, getattr(owner, name)) for owner, name in owners]
        if any(each.shape != found[0].shape for each in found):
            shapes = dict(zip(self.names, (tuple(each.shape) for each in found), strict=True))
            raise ValueError(
                f"Attributes in `names` should have the same shape. Found {shapes}: watch each with"
                " its own StateMonitor."
            )
        return torch.stack(found, -1)


def _tensor(monitor: Monitor, value: Any) -> Tensor:
    """Returns the tensor in an attribute, without its graph, which belongs to the module."""
    return (value if isinstance(value, Tensor) else monitor.picker(value)).detach()
