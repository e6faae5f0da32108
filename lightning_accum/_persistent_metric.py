"""The base of every metric of this package: its states are saved, loaded and plotted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_accum._checked_state import TENSOR, Kind, check_state
from lightning_accum._compat.lightning_internals import in_new_fit
from lightning_accum._compat.torch_internals import attempt
from lightning_accum._compat.torchmetrics_internals import default_states, forget_computed
from lightning_accum._extra_state import EXTRA, Packed, unpack

_SINGLE = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def has_double(device: torch.device) -> bool:
    """Returns whether a device computes in double precision."""
    return device.type != "mps"


def representable(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns the tensor in single precision if the device has no double precision."""
    return tensor if has_double(device) else tensor.to(_SINGLE.get(tensor.dtype, tensor.dtype))


def _like(default: Tensor) -> Kind:
    """Returns the kind of states that have a default; of one element, it may have any size."""
    one = default.numel() == 1
    shape = f"{default.ndim} dimensions" if one else f"shape {tuple(default.shape)}"

    def fits(state: Any) -> bool:
        if not TENSOR.fits(state) or state.is_complex():
            return False
        alike = state.ndim == default.ndim if one else state.shape == default.shape
        return bool(alike and state.is_floating_point() == default.is_floating_point())

    return Kind(f"a dense tensor of {shape} and a dtype such as {default.dtype}", fits)


class PersistentMetric(Packed, Metric):
    """A metric that saves its states, and checks the states that it loads."""

    # torchmetrics leaves states out of the state dict by default, returns a cached result after a
    # state was loaded or merged, and loads any value from any device.

    full_state_update = False
    is_differentiable = False
    _was_loaded = False  # and neither updated nor reset since

    def reset(self) -> None:
        """Forgets all values."""
        super().reset()
        self._was_loaded = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Adds values, and returns the result of these."""
        self._begin()
        return super().forward(*args, **kwargs)

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        update = super()._wrap_update(update)

        @functools.wraps(update)
        def begun(*args: Any, **kwargs: Any) -> None:
            self._begin()
            update(*args, **kwargs)

        return begun

    def _begin(self) -> None:
        """Resets states that were loaded, if the next value is of a new fit of a Trainer."""
        if self._was_loaded:
            self._was_loaded = False
            if attempt(in_new_fit, otherwise=False):
                self.reset()

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        """Adds the states of another metric, or a dictionary of them, to this one's."""
        super().merge_state(incoming_state)
        self._renew()

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plots a result, or several over time, as any metric of torchmetrics does."""
        return self._plot(val, ax)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        names = list(default_states(self))
        if type(self).get_extra_state is not nn.Module.get_extra_state:
            names.append(EXTRA)
        found = {name: state_dict[prefix + name] for name in names if prefix + name in state_dict}
        if found:
            try:
                place = f"`{prefix[:-1] or type(self).__name__}`"
                if EXTRA in found:
                    found[EXTRA] = unpack(found[EXTRA], place)
                self._check_states(place, found.get(EXTRA, found))
            except RuntimeError as error:
                # The metric loads all of its states or none: some of them mean nothing.
                rest[-1].append(str(error))
                found = {}
        for name in names:
            state_dict.pop(prefix + name, None)
        for name, value in found.items():
            if name != EXTRA:
                value = representable(value, self.device).to(self.device, copy=True)
            state_dict[prefix + name] = value
        if EXTRA in names:
            # A state that is missing from the state dict keeps its value, as in torchmetrics.
            state_dict.setdefault(prefix + EXTRA, self.get_extra_state())
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if found:
            self._renew()
            self._was_loaded = True

    def _kinds(self) -> dict[str, Kind]:
        """Returns the kind of each state."""
        return {name: _like(default) for name, default in default_states(self).items()}

    def _check_states(self, place: str, states: dict[str, Any]) -> None:
        """Raises a ``RuntimeError`` if the states to load are not those of such a metric."""
        check_state(place, states, self._kinds())

    def _renew(self) -> None:
        """Forgets the cached result, because states were loaded or merged."""
        forget_computed(self)
