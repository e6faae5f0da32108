"""The pool of a trainer's monitors, in which groups share equal monitors."""

from collections.abc import Hashable, Iterator, Mapping
from typing import Any

from torch import nn

from lightning_accum.observe.hooks import Switch
from lightning_accum.observe.monitor import Monitor


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
