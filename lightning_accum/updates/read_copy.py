"""The copy of a pending part that was read last, which is not a new contribution to it."""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor


class ReadCopy:
    """Remembers the copy that was read last, weakly; a copy of this remembers none."""

    def __init__(self) -> None:
        self._latest: weakref.ref[Tensor] | None = None

    def of(self, value: Tensor | None) -> Tensor | None:
        """Returns a copy of a value to read, and remembers it."""
        if value is None:
            return None
        copy = value.clone()
        self._latest = weakref.ref(copy)
        return copy

    def checked(self, label: str, value: Tensor | None) -> Tensor | None:
        """Returns a contribution, unless it is the copy that was read last, as with ``+=``.

        Args:
            label: names the part in the message.
            value: what is about to be added.

        Raises:
            ValueError: if it is that copy, by which what is pending would count twice.
        """
        if value is not None and self._latest is not None and value is self._latest():
            raise ValueError(
                f"A value assigned to `{label}` should be a new contribution, which is added to"
                " what is pending. Found the tensor that was read from there, as with `+=`, by"
                f" which what is pending would count twice: write `{label} = value` to add"
                f" `value`, and `del {label}` before it to replace what is pending."
            )
        return value

    def __getstate__(self) -> dict[str, Any]:
        return {"_latest": None}
