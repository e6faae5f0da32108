"""Has rules add only the difference of both parts of a change when nothing reads the parts."""

from __future__ import annotations

from lightning_accum.callbacks._host import CellHost
from lightning_accum.distributed.world import processes
from lightning_accum.updates.accumulator import Accumulator


class Combining:
    """Lets rules combine parts while a batch is evaluated and applied at once.

    What is applied does not depend on whether parts are recorded, so that statistics change
    nothing. Accumulators whose user has set ``keep_parts`` stay unchanged.

    Args:
        host: the host of the cells.
    """

    def __init__(self, host: CellHost) -> None:
        self._host = host
        self._combining: list[Accumulator] = []
        self._records: dict[Accumulator, Accumulator] = {}  # of their parts, for the next one

    def begin(self, at_once: bool, record: bool = False) -> None:
        """Prepares for the evaluation of a batch; again if something else consumed its parts.

        Args:
            at_once: whether its change is applied before anyone can read it.
            record: whether both parts are recorded too, for statistics.
        """
        if not at_once:
            self.end()
        elif not self._combining and processes() == 1:
            found = (getattr(u, n) for u in self._host.updaters.values() for n in u.names)
            self._combining = [each for each in found if each.keep_parts is None]
            for accumulator in self._combining:
                accumulator.may_combine = True
        for accumulator in self._combining if record else ():
            if accumulator.combines and not accumulator.records:
                known = self._records.get(accumulator)
                self._records[accumulator] = accumulator.record_parts(known)

    def __enter__(self) -> None:
        self.begin(at_once=True)

    def __exit__(self, *error: object) -> None:
        self.end()

    def end(self) -> None:
        """Has rules add both parts again."""
        for accumulator in self._combining:
            accumulator.may_combine = False
        self._combining, self._records = [], {}
