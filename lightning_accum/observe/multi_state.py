"""The monitor of several attributes of a module at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from lightning_accum._checks import names_in
from lightning_accum.observe.monitor import Monitor
from lightning_accum.observe.paths import find_attribute
from lightning_accum.observe.reducers.base import Reducer


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
        found = [self._pick(getattr(owner, name)) for owner, name in owners]
        if any(each.shape != found[0].shape for each in found):
            shapes = dict(zip(self.names, (tuple(each.shape) for each in found), strict=True))
            raise ValueError(
                f"Attributes in `names` should have the same shape. Found {shapes}: watch each with"
                " its own StateMonitor."
            )
        return torch.stack(found, -1)
