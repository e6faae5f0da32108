"""A pending change whose parts may be summed into one, where nothing needs each of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from lightning_accum.updates.part import Part
from lightning_accum.updates.pending import PendingChange


class CombinedChange(PendingChange):
    """Collects both parts of a parameter's change or, where that is enough, their difference.

    A rule visits spikes once for the difference, and twice for both parts. The difference is kept
    in the potentiating part, so that the change is that of any other contributions.

    Args:
        shape: the parameter's shape; if it is given, contributions have to broadcast to it.
        name: the parameter's name, for messages.
    """

    def __init__(self, shape: torch.Size | None = None, *, name: str = "parameter") -> None:
        super().__init__(shape, name=name)
        self.keep_parts: bool | None = None
        self.records: list[Self] = []
        self.of_all = False  # whether the changes of all processes are pending
        self._combined = False

    @property
    def sums(self) -> bool:
        """Whether contributions are summed, so that one may be added in pieces."""
        return self._pos.reduction.adds and not self._pos.reduction.averages

    @property
    def combines(self) -> bool:
        """Whether the difference of both parts may be added, because nothing needs each part."""
        return self.keep_parts is False and self.sums and not self.bounded

    @property
    def combined(self) -> bool:
        """Whether a difference of both parts is pending."""
        return self._combined and not self.empty

    def note_combined(self) -> None:
        """Notes that what was added to the potentiating part is the difference of both."""
        self._combined = True

    def record_parts(self) -> Self:
        """Has rules add both parts to a record too, which is returned, until this is cleared."""
        record = type(self)(self.shape, name=self.name)
        record.accumulate(*(part.value() for part in (self._pos, self._neg)))
        self.records[:] = [record]
        return record

    def replace(self, pos: Tensor, neg: Tensor) -> None:
        """Puts the sum over processes, which others may combine, in the place of what is pending.

        Args:
            pos: the potentiating part of all processes.
            neg: the depressing part of all processes.
        """
        combined = self.combines or self.combined
        super().clear()
        self.accumulate(pos, neg)
        self._combined, self.of_all = combined, True

    def clear(self, **kwargs: Any) -> None:
        """Drops everything that is pending; the reduction and the bounds stay."""
        super().clear()
        self._combined = self.of_all = False
        self.records.clear()

    def emptying_calls(self) -> list[partial[None]]:
        """Returns calls that empty both parts; :meth:`clear` then frees their memory."""
        # Not by the `__setattr__` of modules, in which an interrupt would leave this half empty.
        forget = partial(object.__setattr__, self, "_combined", False)
        return [*super().emptying_calls(), forget, partial(self.records.clear)]

    def _known(self, part: Part) -> Part:
        if self.combined and self.records:
            return self.records[0]._pos if part is self._pos else self.records[0]._neg
        self._check_apart("read")
        return part

    def _check_apart(self, what: str) -> None:
        """Raises a ``RuntimeError`` if the difference of both parts is pending."""
        if self.combined:
            raise RuntimeError(
                f"Both parts of the change of `{self.name}` should be known to be {what}. Found"
                " their difference, which a rule has added: apply it, or drop it with `clear()`,"
                " and set `keep_parts = True` of the accumulator before the rule runs."
            )
