"""The monitors of a module's states, and of the gradient of a loss by its output."""

from __future__ import annotations

import weakref
from typing import Any, final

from torch import Tensor, nn

from lightning_accum.observe.monitor import Monitor, find_module


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
        parent, _, name = attr.rpartition(".")
        found = find_module(module, parent)
        if not hasattr(found, name):
            raise AttributeError(
                f"Argument `attr` should lead to an attribute of a module. Found `{attr}`, and"
                f" `{type(found).__name__}` has no `{name}`."
            )
        return found, name

    def _take(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        self._record(getattr(module, self.name))


@final
class GradientMonitor(Monitor):
    r"""Watches the gradient :math:`\partial E / \partial y` of a loss by a module's output.

    It records a gradient for each call of the module, in the order of the calls, when a backward
    pass has reached that call: after one backward pass for all steps as well as after one for each
    step. A call whose output does not require grad is not recorded, and one that no backward pass
    reaches holds back those that come later until :meth:`clear`.

    See :class:`Monitor` for the arguments.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum.observe import GradientMonitor
        >>> fc, relu = nn.Linear(2, 2), nn.ReLU()
        >>> monitor = GradientMonitor(relu)
        >>> y = relu(fc(torch.ones(1, 2)))
        >>> (3 * y).sum().backward()
        >>> monitor.peek()
        tensor([[3., 3.]])
    """

    records_gradients = True

    def __init__(self, module: nn.Module, attr: str = "", *args: Any, **options: Any) -> None:
        super().__init__(module, attr, *args, **options)
        self._begin()

    def _take(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Asks for the gradient by the output of a call."""
        (value,) = rest
        output = value if isinstance(value, Tensor) else self.picker(value)
        if output.requires_grad:
            me, call, round_ = weakref.ref(self), self._calls, self._round

            def receive(gradient: Tensor) -> None:
                if (monitor := me()) is not None:
                    monitor.receive(call, round_, gradient)

            output.register_hook(receive)
            self._calls += 1
        else:
            self._without += 1

    def receive(self, call: int, round_: object, gradient: Tensor) -> None:
        """Records the gradient of a call as soon as those of all earlier calls are there."""
        if round_ is not self._round:
            return
        early = self._early
        if call < self._next or call in early:
            raise RuntimeError(
                f"One backward pass should reach each call of the"
                f" `{type(self.module).__name__}` whose gradient is recorded. Found a second one,"
                " whose gradient would not count: add the losses, and call `backward()` once."
            )
        early[call] = gradient
        while self._next in early:
            self._record(early.pop(self._next))
            self._next += 1

    def clear(self, **kwargs: Any) -> None:
        """Drops what was recorded, and gradients that are still to come."""
        super().clear(**kwargs)
        self._begin()

    def why_missing(self) -> str:
        """Returns how to mend that gradients of some or all calls are missing."""
        kind = type(self.module).__name__
        if self._without:
            return (
                f"the output of the {kind} did not require grad in {self._without} of"
                f" {self._without + self._calls} calls. Let the connection's weights or its input"
                " require grad (`x.requires_grad_()`), take neurons that pass a gradient, such as"
                ' `SurrogateLIF(..., gradient="step")`, and call nothing under `torch.no_grad()`'
                " or after `detach()`."
            )
        return (
            f"no backward pass has reached each call of the {kind}: call `backward()` on a loss"
            " that depends on each, before the rule."
        )

    def _begin(self) -> None:
        """Forgets all calls."""
        self._calls = self._next = self._without = 0
        self._early: dict[int, Tensor] = {}
        self._round = object()  # tells calls from those before the last `clear`

    def __getstate__(self) -> dict[str, Any]:
        calls = dict.fromkeys(("_calls", "_next", "_without"), 0)
        return {**super().__getstate__(), **calls, "_early": {}, "_round": None}
