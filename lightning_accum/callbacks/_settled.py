"""Rejects assignments to a learner that would have no effect."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

from lightning_accum._checks import nearest


class Settled:
    """An object whose arguments are read once: assigning to one of them later raises an error.

    So does assigning to an attribute that the class lacks; a subclass may have others of its own.
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
        arguments = [*signature(kind).parameters]
        if name in arguments:
            found, remedy = "an argument", f"make a new one with `{name}=...`."
            if name == "lr":
                remedy = "pass a schedule as `lr_scheduler`, or " + remedy
        elif type(self) is kind and name not in vars(self) and not hasattr(kind, name):
            found, remedy = f"not one of its arguments {arguments}", nearest(name, arguments)[2:]
            remedy = remedy or "keep it in an object of your own."
        else:
            return
        raise AttributeError(
            f"What a {kind.__name__} does should be given when it is made. Found `{name}`, {found},"
            f" assigned to it afterwards, which would have no effect: {remedy}"
        )
