"""A pending change that may hold both parts as one: their difference, or stacked products."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from lightning_accum.updates.part import Part
from lightning_accum.updates.pending import PendingChange
from lightning_accum.updates.products import StackedProducts


class CombinedChange(PendingChange):
    """Collects both parts of a parameter's change or, if that is enough, their difference.

    A rule visits spikes once for the difference, and twice for both parts. The difference is kept
    in the potentiating part, so that the change is that of any other contributions.

    Args:
        shape: the parameter's shape; if it is given, contributions have to broadcast to it.
        name: the parameter's name, for messages.
    """

    def __init__(self, shape: torch.Size | None = None, *, name: str = "parameter") -> None:
        super().__init__(shape, name=name)
        self.keep_parts: bool | None = None
        self.cleared = 0  # contributions that were dropped
        self.told = False  # whether the user knows of those that were not applied
        self._read = 0  # contributions that were read once, and then dropped
        self._seen = 0  # those that were pending when they were read last ...
        self._again = False  # ... and whether some of them had been read before
        self.may_combine = False  # used if `keep_parts` is None
        self.records: list[Self] = []
        self.of_all_processes = False  # whether the changes of all processes are pending
        self._combined = False
        self.kept = 0  # how many contributions were applied without being dropped

    @property
    def sums(self) -> bool:
        """Whether contributions are summed, so that one may be added in pieces."""
        return self._pos.reduction.adds and not self._pos.reduction.averages

    @property
    def combines(self) -> bool:
        """Whether the difference of both parts may be added, because nothing needs each part."""
        wanted = self.may_combine if self.keep_parts is None else not self.keep_parts
        return wanted and self.sums and not self.bounded

    @property
    def combined(self) -> bool:
        """Whether a difference of both parts is pending."""
        return self._combined and not self.empty

    def note_combined(self) -> None:
        """Notes that what was added to the potentiating part is the difference of both."""
        self._combined = True

    @property
    def is_free(self) -> bool:
        """Whether :meth:`hold` may be called: nothing is pending, and nothing but sums."""
        return (
            self._pos.count == 0 == self._neg.count
            and self._pos.reduction.adds
            and not (self.bounded or self.records)
        )

    def hold(self, stacked: StackedProducts) -> None:
        """Holds products as the only contribution, without copying them.

        Args:
            stacked: the products, of the parameter's shape; nobody changes them while they are
                pending.
        """
        self._pos.hold(stacked.raised, stacked)
        self._neg.hold(stacked.lowered, stacked)

    @property
    def stacked(self) -> StackedProducts | None:
        """The change as products that are stacked; ``None`` if it holds anything else."""
        found = self._pos.stacked
        return None if found is not self._neg.stacked or self.bounded else found

    def record_parts(self, record: Self | None = None) -> Self:
        """Returns a record, to which rules add both parts too, until this is cleared.

        Args:
            record: an earlier record, whose memory is used again.
        """
        if record is None:
            record = type(self)(self.shape, name=self.name)
        record.clear()
        if not self.empty:
            record.accumulate(*(part.value() for part in (self._pos, self._neg)))
        self.records[:] = [record]
        return record

    def replace(self, pos: Tensor, neg: Tensor) -> None:
        """Replaces what is pending by its sum over processes, which may have combined both parts.

        Args:
            pos: the potentiating part of all processes.
            neg: the depressing part of all processes.
        """
        combined = self.combines or self.combined
        super().clear()
        self.accumulate(pos, neg)
        self._combined, self.of_all_processes = combined, True

    def clear(self, **kwargs: Any) -> None:
        """Drops everything that is pending; the reduction and the bounds stay."""
        if dropped := self.contributions:
            self.cleared += dropped
        if self._seen:
            self._read += self._read_once
            self._seen, self._again = 0, False
        super().clear()
        if self._combined or self.of_all_processes:
            self._combined = self.of_all_processes = False
        if self.kept:
            self.kept = 0
        self.records.clear()

    @property
    def unused(self) -> int:
        """The number of contributions that are pending or were dropped, and that nobody has used.

        Whoever applies them otherwise reads all that is pending, once, and then drops it; who reads
        it now and then, and drops nothing, only looks.
        """
        if self.told:
            return 0
        return max(self.contributions + self.cleared - self._read - self._read_once, 0)

    @property
    def _read_once(self) -> int:
        """The number of pending contributions that were read, and only once."""
        return 0 if self._again else min(self._seen, self.contributions)

    def note_look(self) -> None:
        """Notes that someone reads what is pending."""
        if (pending := self.contributions) != self._seen:
            self._again = pending > self._seen and (self._again or self._seen > 0)
            self._seen = pending

    def emptying_calls(self) -> list[partial[None]]:
        """Returns calls that empty both parts; :meth:`clear` then frees their memory."""
        calls = super().emptying_calls()
        if self._combined:
            # The `__setattr__` of modules is Python code, in which an interrupt could leave this
            # half empty.
            calls.append(partial(object.__setattr__, self, "_combined", False))
        if self.records:
            calls.append(partial(self.records.clear))
        return calls

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "may_combine": False}  # a copy is not in the fit of its original

    def known_parts(self) -> tuple[Tensor | None, Tensor | None]:
        """Returns both reduced parts, which may share memory with this object, without copies.

        They hold what is pending until something else is accumulated.
        """
        self.note_look()
        return self._known(self._pos).value(), self._known(self._neg).value()

    def _look(self, part: Part) -> Tensor | None:
        self.note_look()
        return super()._look(part)

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
