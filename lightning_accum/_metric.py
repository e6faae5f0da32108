"""The base of every metric here: states that are saved, load into a fresh object, and plot."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torchmetrics import Metric


class PersistentMetric(Metric):
    """A metric whose states are in the state dict, and that knows when they came in from elsewhere.

    torchmetrics leaves states out of the state dict unless asked, keeps a cached result when a
    state is loaded or merged, and takes a loaded tensor as it is, on whatever device.
    """

    full_state_update = False
    is_differentiable = False

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
        if type(self).get_extra_state is not nn.Module.get_extra_state:
            # What the state dict lacks stays as it is, as torchmetrics has it for other states.
            state_dict.setdefault(f"{prefix}_extra_state", self.get_extra_state())
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
        """States came in from elsewhere: forgets the cached result."""
        self._computed = None
