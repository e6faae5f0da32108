"""The base of metrics whose states are sums."""

from __future__ import annotations

from torch import Tensor

from lightning_accum._compat import default_states, mark_updated
from lightning_accum._metric import PersistentMetric


class AdditiveMetric(PersistentMetric):
    """A metric whose states add up over updates, over processes, and in ``merge_state``.

    The states are in the state dict. A state with one element takes the shape of the first tensor
    that is added to it.
    """

    def add_sum(self, name: str, default: Tensor) -> None:
        """Adds a state that is summed over processes.

        Args:
            name: name of the state, under which it becomes an attribute.
            default: the value after ``reset``.
        """
        self.add_state(name, default, dist_reduce_fx="sum", persistent=True)

    def _renew(self) -> None:
        """Forgets the cached result, and notes whether the new states hold data."""
        super()._renew()
        if any(bool(getattr(self, name).any()) for name in default_states(self)):
            mark_updated(self)
