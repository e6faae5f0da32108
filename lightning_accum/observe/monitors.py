"""The monitors of states and of gradients, and the pool of all monitors of a trainer."""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, final

from torch import Tensor, nn

from lightning_accum.observe.hooks import Switch
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


class MonitorPool(nn.Module):
    """Holds monitors by group and name; equal monitors of several groups are one object."""

    # In training mode the monitors of modules that exist are registered, in evaluation mode none;
    # hooks stay, as code that is compiled without them would not look for them again.

    def __init__(self) -> None:
        super().__init__()
        self.switch = Switch()
        self._groups: Any = nn.ModuleDict()  # of a ModuleDict for each group
        self._keys: dict[tuple[str, str], tuple[Hashable, ...] | None] = {}
        # looked up when they are needed
        self._unique: list[Monitor] | None = None
        self._members: dict[str, dict[str, Monitor]] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        """Sets an attribute; monitors follow the mode, which Lightning restores without `train`."""
        super().__setattr__(name, value)
        if name == "training":
            for monitor in self.unique():
                self._follow(monitor)

    def add_group(self, group: str) -> None:
        """Adds an empty group."""
        self._groups[group] = nn.ModuleDict()

    def del_group(self, group: str) -> None:
        """Deletes a group and those of its monitors that no other group has."""
        if group in self._groups:  # an interrupt may have come before it was added
            for name in list(self.members(group)):
                self.delete(group, name)
            del self._groups[group]

    def add(
        self, group: str, name: str, monitor: Monitor, tags: tuple[Hashable, ...] | None = None
    ) -> Monitor:
        """Adds a monitor, or shares the equal one that is already in the pool."""
        key = None
        if tags is not None:
            key = (name, type(monitor), type(monitor.reducer), monitor.name, *tags)
        equal = [
            known
            for place, known in self.named()
            if key is not None and self._keys[place] == key and known.module is monitor.module
        ]
        existing = self.get(group, name)
        if existing is not None:
            if any(known is existing for known in equal):
                return existing
            self.delete(group, name)
        chosen = equal[0] if equal else monitor
        self._keys[group, name] = key  # first: each monitor always has a key
        self._groups[group][name] = chosen
        self._changed()
        self._follow(chosen)
        return chosen

    def get(self, group: str, name: str) -> Monitor | None:
        """Returns the monitor of a group by its name, ``None`` if the group does not have it."""
        return self.members(group).get(name)

    def delete(self, group: str, name: str) -> None:
        """Deletes a monitor from a group, and deregisters it if no other group shares it."""
        monitor = self.get(group, name)
        assert monitor is not None
        del self._groups[group][name]
        self._changed()
        self._keys.pop((group, name), None)
        if all(other is not monitor for other in self.unique()):
            monitor.deregister()

    def members(self, group: str) -> Mapping[str, Monitor]:
        """Returns the monitors of a group by name, which are looked up once."""
        if group not in self._members:
            self._members[group] = dict(self._groups[group].items())
        return self._members[group]

    def named(self) -> Iterator[tuple[tuple[str, str], Monitor]]:
        """Yields every group and name with its monitor; a shared monitor comes several times."""
        for group in self._groups:
            for name, monitor in self.members(group).items():
                yield (group, name), monitor

    def unique(self) -> Iterator[Monitor]:
        """Returns an iterator over every monitor, each once."""
        if self._unique is None:
            self._unique = list({id(monitor): monitor for _, monitor in self.named()}.values())
        return iter(self._unique)

    def bind(self, group: str, root: object) -> None:
        """Binds the monitors of a copy to the object from which their paths lead."""
        for monitor in self.members(group).values():
            monitor.bind(root)
            self._follow(monitor)

    def clear(self, **kwargs: Any) -> None:
        """Clears every monitor."""
        for monitor in self._unique or self.unique():
            monitor.clear(**kwargs)

    def drop_window(self) -> None:
        """Drops recorded windows; other reducers keep what they have."""
        for monitor in self._unique or self.unique():
            monitor.reducer.drop_window()

    def _follow(self, monitor: Monitor) -> None:
        """Brings a monitor in line with the trainer's mode."""
        monitor.switch = self.switch
        if self.training and monitor.module is not None:
            monitor.register()
        else:
            monitor.deregister(keep_hook=True)

    def _changed(self) -> None:
        """Has monitors looked up again when they are needed."""
        self._unique, self._members = None, {}
