"""Chooses the updates around which the weights of a fit are noted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._parameter_record import ParameterRecord
from lightning_accum.updates import Updater


class UpdateLooks:
    """Notes weights around updates 1, 2, 4, 8 and so on, and around the first of each epoch.

    Before the update that follows, weights are compared with those that were left, unless another
    callback trains them too.

    Args:
        records: the records of parameters, by cell and name.
        others: the hosts of the other callbacks of the fit.
    """

    def __init__(
        self, records: Mapping[tuple[str, str], ParameterRecord], others: Sequence[CellHost]
    ) -> None:
        self._records = records
        self._shared = {
            id(updater.target(name))
            for host in others
            for updater in host.updaters.values()
            for name in updater.names
        }
        self._updates = 0
        self._epoch_began = True
        self._noting = False  # whether the weights around this update are noted

    def begin(self, params: Iterable[tuple[str, Updater, str]]) -> None:
        """Notes the weights before an update if it is one of those.

        Args:
            params: cells, updaters and names of the parameters that have a record.
        """
        compared = self._noting or self._epoch_began
        self._updates += 1
        self._noting = self._epoch_began or not self._updates & (self._updates - 1)
        self._epoch_began = False
        if not (compared or self._noting):
            return
        for cell, updater, name in params:
            record = self._records[cell, name]
            if compared and id(updater.target(name)) not in self._shared:
                record.compare(updater)
            if self._noting:
                record.update_begins(updater)

    def end(self, params: Iterable[tuple[str, Updater, str]]) -> None:
        """Notes the weights after that update.

        Args:
            params: as for :meth:`begin`.
        """
        if self._noting:
            for cell, updater, name in params:
                self._records[cell, name].update_ended(updater)

    def epoch_ended(self) -> None:
        """Notes the weights around the next update."""
        self._epoch_began = True
