"""The states of optimizers with moments: how they begin, and whether a loaded one fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import is_number
from lightning_accum.distributed.shards import local
from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.optim._plan import as_real

State = dict[str, Any]


def begin(state: State, names: tuple[str, ...], param: Tensor) -> None:
    """Begins the count of steps and the moments at zero, in float32 or wider."""
    state["step"] = 0
    for name in names:
        state[name] = torch.zeros_like(param, dtype=at_least_float32(param.dtype))


def check_state(
    optimizer: str, names: tuple[str, ...], param: Tensor, state: Mapping[str, Any]
) -> None:
    """Raises a ``ValueError`` if a state lacks a moment, or one does not fit the parameter."""
    missing = [name for name in ("step", *names[:2]) if name not in state]
    if missing:
        raise ValueError(
            f"The state of a parameter of shape {tuple(param.shape)} should hold"
            f" {['step', *names]}. Found no {missing}: load a state of `{optimizer}`, or leave the"
            " parameter's state out."
        )
    for name in names:
        if name in state:
            _check_moment(name, state[name], param)


def check_values(names: tuple[str, ...], param: Tensor, state: Mapping[str, Any]) -> None:
    """Raises a ``ValueError`` if a checked state has a count or moments that no step can make.

    Reading the values waits for their device.
    """
    checked_count(state["step"])
    for i, name in enumerate(names):
        values = as_real(local(state[name])) if name in state else None
        if values is None or values.is_meta:
            continue
        fits = values >= 0 if i else values.isfinite()
        if not fits.all():
            wrong = values.masked_select(~fits)
            should = "numbers of at least zero" if i else "finite numbers"
            raise ValueError(
                f"The state of a parameter of shape {tuple(param.shape)} should hold {should} in"
                f" `{name}`. Found {len(wrong)} others, such as {wrong[0].item():g}, with which"
                " steps would make the parameter NaN: load an earlier checkpoint, or leave the"
                " parameter's state out."
            )


def prepare(state: State, names: tuple[str, ...], param: Tensor, capturable: bool) -> None:
    """Converts a checked state, in place, to the form that steps use."""
    for name in names:
        if name in state:
            state[name] = as_real(state[name])  # Those of torch's optimizers are complex.
    step = state["step"]
    if not (capturable and _is_count_on(step, param.device)):  # reading that would synchronise
        step = checked_count(step)
    if capturable:
        step = torch.as_tensor(step, dtype=torch.float32, device=param.device)
    state["step"] = step


def _is_count_on(step: Any, device: torch.device) -> bool:
    """Returns whether ``step`` is a tensor that counts steps on the device."""
    return isinstance(step, Tensor) and step.device == device and step.dim() == 0


def checked_count(step: Any) -> int:
    """Returns a count of steps as an integer."""
    given = step
    if isinstance(step, Tensor) and step.numel() == 1 and not step.is_meta:
        step = step.item()
    if not is_number(step) or not 0 <= step < 2**53 or not float(step).is_integer():
        raise ValueError(
            "The state of a parameter should count its steps, from zero, in `step`. Found"
            f" `step = {given!r}`: load a state that was saved by `state_dict()`."
        )
    return int(step)


def _check_moment(name: str, value: Any, param: Tensor) -> None:
    """Raises a ``ValueError`` if a state's ``value`` cannot be a moment of the parameter."""
    shape, found = tuple(param.shape), f"`{type(value).__name__}`"
    if isinstance(value, Tensor):
        # A complex parameter has moments of pairs of numbers, or of complex numbers.
        real = (*shape, 2) if param.is_complex() and not value.is_complex() else shape
        dense = value.layout is torch.strided and value.is_meta == param.is_meta
        # torch has no sums of a floating-point dtype of one byte.
        floats = value.is_floating_point() and value.dtype.itemsize > 1
        kind = floats or (value.is_complex() and param.is_complex())
        if dense and kind and value.shape == real:
            return
        found = f"one of shape {tuple(value.shape)}, {value.dtype}, {value.layout}, {value.device}"
    raise ValueError(
        f"The state of a parameter should hold `{name}` as a dense floating-point tensor of the"
        f" parameter's shape, {shape}. Found {found}: load a state of the same parameters in the"
        " same order, or begin without one."
    )
