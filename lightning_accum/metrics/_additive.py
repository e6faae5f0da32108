"""The base of metrics whose states are sums."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torchmetrics import Metric


class AdditiveMetric(Metric):
    """A metric whose states all add up: over updates, over processes, and in ``merge_state``.

    The states are in the state dict. A state of one element takes the shape of what is added to it.
    """

    full_state_update = False
    is_differentiable = False

    def add_sum(self, name: str, default: Tensor) -> None:
        """Adds a state that is summed."""
        self.add_state(name, default, dist_reduce_fx="sum", persistent=True)

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Adds another metric's states, or a dictionary of them, to this one's.

        Args:
            incoming_state: a metric of the same class, or its states by name.
        """
        super().merge_state(incoming_state)
        self._renew()

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plots a result, or a sequence of them over time.

        Args:
            val: what ``compute`` or ``forward`` returned, or a list of that; ``compute()`` when
                missing.
            ax: matplotlib axes to draw in; a new figure when missing.

        Returns:
            The figure, ``None`` where ``ax`` was given, and the axes.

        Raises:
            ModuleNotFoundError: if matplotlib is not installed.
        """
        return self._plot(val, ax)

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for name, default in self._defaults.items():
            found = state_dict.get(prefix + name)
            if not isinstance(found, Tensor) or not isinstance(default, Tensor):
                continue
            if default.numel() > 1 and found.shape != default.shape:
                error_msgs.append(
                    f"size mismatch for {prefix}{name}: expected {tuple(default.shape)}, found"
                    f" {tuple(found.shape)}."
                )
                del state_dict[prefix + name]
            else:
                state_dict[prefix + name] = found.to(self.device, copy=True)
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        self._renew()

    def _renew(self) -> None:
        """States came in from elsewhere: forget the cached result and know that there is data."""
        self._computed = None
        if any(bool(getattr(self, name).any()) for name in self._defaults):
            self._update_count = max(self._update_count, 1)
