"""The base of every metric here: states that are saved, load into a fresh object, and plot."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

_SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}
_EXTRA = "_extra_state"


def has_double(device: torch.device) -> bool:
    """Whether a device computes in double precision."""
    return device.type != "mps"


def representable(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor in a dtype that a device has: single precision where it has no double."""
    return tensor if has_double(device) else tensor.to(_SINGLE.get(tensor.dtype, tensor.dtype))


class PersistentMetric(Metric):
    """A metric whose states are in the state dict, and that knows when they came in from elsewhere.

    torchmetrics leaves states out of the state dict unless asked, keeps a cached result when a
    state is loaded or merged, and takes whatever it finds, from whatever device.
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
        names = list(self._defaults)
        if type(self).get_extra_state is not nn.Module.get_extra_state:
            names.append(_EXTRA)
        found = {name: state_dict[prefix + name] for name in names if prefix + name in state_dict}
        if found:
            try:
                self._check_states(found, names)
            except ValueError as error:
                # All states or none: of a part there is nothing to go on with.
                error_msgs.append(f"`{prefix[:-1] or type(self).__name__}`: {error}")
                found = {}
        for name in names:
            state_dict.pop(prefix + name, None)
        for name, value in found.items():
            if name != _EXTRA:
                value = _copy_on(value, self.device) if isinstance(value, Tensor) else value
            state_dict[prefix + name] = value
        if _EXTRA in names:
            # What the state dict lacks stays as it is, as torchmetrics has it for other states.
            state_dict.setdefault(prefix + _EXTRA, self.get_extra_state())
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
        )
        if found:
            self._renew()

    def _check_states(self, states: dict[str, Any], names: list[str]) -> None:
        """Raises a ValueError where states that are to be loaded are not those of such a metric."""
        lacking = [name for name in names if name not in states]
        if lacking:
            raise ValueError(
                f"the state dict should have all of its states, {names}. Found none for {lacking}."
            )
        for name, default in self._defaults.items():
            self._check_state(name, states[name], default)

    def _check_state(self, name: str, state: Any, default: Any) -> None:
        check_kind(name, state, default)
        if state.ndim != default.ndim or (default.numel() > 1 and state.shape != default.shape):
            raise ValueError(
                f"size mismatch for {name}: it should have shape {tuple(default.shape)}. Found"
                f" {tuple(state.shape)}."
            )

    def _renew(self) -> None:
        """States came in from elsewhere: forgets the cached result."""
        self._computed = None


def check_kind(name: str, state: Any, default: Tensor) -> None:
    """Raises a ValueError where a state is no tensor of numbers of its default's kind."""
    if not isinstance(state, Tensor):
        raise ValueError(f"state `{name}` should be a tensor. Found `{type(state).__name__}`.")
    if state.dtype.is_floating_point != default.dtype.is_floating_point or state.is_complex():
        raise ValueError(
            f"state `{name}` should be of a dtype such as {default.dtype}. Found {state.dtype}."
        )


def _copy_on(tensor: Tensor, device: torch.device) -> Tensor:
    return representable(tensor, device).to(device, copy=True)
