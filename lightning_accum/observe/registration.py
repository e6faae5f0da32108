"""The hooks that an object has registered, and their end."""

from __future__ import annotations

import weakref
from typing import final

from torch.utils.hooks import RemovableHandle


@final
class Registration:
    """Holds the handles of an object's hooks, and removes the hooks when the object dies.

    Args:
        owner: the object.
    """

    def __init__(self, owner: object) -> None:
        self.handles: list[RemovableHandle] = []
        self._finalizer = weakref.finalize(owner, _remove, self.handles)
        self._finalizer.atexit = False

    def remove(self) -> None:
        """Removes the hooks."""
        _remove(self.handles)
        self._finalizer.detach()


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()
