"""An attribute that ``__init__`` sets, and that tells if ``__init__`` was not called."""

from __future__ import annotations

from typing import Any


class Unset:
    """Raises an error if an attribute is read before ``super().__init__`` has set it."""

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        raise RuntimeError(
            f"`{owner.__name__}.__init__` should call `super().__init__(...)` before anything else"
            " is done with it. Found that it has not: call it first, or leave out"
            " `__init__`, as a rule's arguments are its annotated attributes, `lr: float = 0.1`."
        )
