"""The base of metrics whose states are sums."""

from __future__ import annotations

from torch import Tensor

from lightning_accum._metric import PersistentMetric


class AdditiveMetric(PersistentMetric):
    """A metric whose states all add up: over updates, over processes, and in ``merge_state``.

    The states are in the state dict. A state of one element takes the shape of what is added to it.
    """

    def add_sum(self, name: str, default: Tensor) -> None:
        """Adds a state that is summed."""
        self.add_state(name, default, dist_reduce_fx="sum", persistent=True)

    def _renew(self) -> None:
        """States came in from elsewhere: also knows that there is data."""
        super()._renew()
        if any(bool(getattr(self, name).any()) for name in self._defaults):
            self._update_count = max(self._update_count, 1)
