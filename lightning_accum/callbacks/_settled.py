"""Rejects assignments to a learner that would have no effect."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any


class Settled:
    """An object whose arguments are read once: assigning to one of them later raises an error.

    Any other attribute may be set, as on any object.
    """

    _kind: type | None = None  # the class whose arguments are read, once they are

    def settle(self, kind: type) -> None:
        """Rejects assignments from now on.

        Args:
            kind: the class whose ``__init__`` ends.
        """
        self._kind = kind

    if not TYPE_CHECKING:  # a type checker would take this method for leave to assign anything

        def __setattr__(self, name: str, value: Any) -> None:
            if self._kind is not None and not callable(value):  # Lightning sets `log`, a method
                self._check(self._kind, name)
            super().__setattr__(name, value)

    def _check(self, kind: type, name: str) -> None:
        if name not in signature(kind).parameters:
            return
        remedy = "pass a schedule as `lr_scheduler`, or " if name == "lr" else ""
        raise AttributeError(
            f"What a {kind.__name__} does should be given when it is made. Found `{name}`, an"
            " argument, assigned to it afterwards, which would have no effect:"
            f" {remedy}make a new one with `{name}=...`."
        )
