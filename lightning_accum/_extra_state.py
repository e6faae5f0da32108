"""A module's state as one vector of numbers, so that each entry of a state dict is a tensor."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

EXTRA = "_extra_state"
_LIMB = 2**32  # double precision counts to 2**53: a 64-bit integer is two numbers
_NUMBERS = {"int": torch.int64, "float": torch.float64}  # those of Python
_NAMES = "bool uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128"
_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in _NAMES.split()}
_NAME_OF = {dtype: name for name, dtype in _DTYPES.items()}


class Packed(nn.Module):
    """A module whose extra state is a vector in a state dict."""

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if (key := prefix + EXTRA) in destination:
            destination[key] = pack(destination[key])


def pack(state: Any) -> Any:
    """Returns a state as a vector; the state itself if it holds other than tensors and builtins."""
    # It begins with the form of the state, whose letters are numbers too. States of one form have
    # each number at one place, so that the mean of their vectors is the state of their means.
    parts: list[Tensor] = []
    try:
        form = json.dumps(_form_of(state, parts)).encode()
    except (TypeError, KeyError, ValueError, RuntimeError):  # or an integer beyond 64 bits
        return state
    devices = (part.device for part in parts if part.device.type not in ("cpu", "mps"))
    device = next(devices, torch.device("cpu"))  # which computes in double precision
    begin = torch.tensor([len(form), *form])
    return torch.cat([part.to(device, torch.float64) for part in (begin, *parts)])


def unpack(vector: Any, place: str) -> Any:
    """Returns the state that a vector is, or raises a ``RuntimeError``; else the object itself."""
    if not isinstance(vector, Tensor):
        return vector
    try:
        if vector.is_complex():
            raise TypeError
        every = vector.detach().to(torch.float64)
        size = int(every[0].round())
        form = bytes(every[1 : 1 + size].round().int().tolist())
        numbers = _Numbers(every[1 + size :])
        state = _state_of(json.loads(form), numbers)
        fits = not len(numbers.left)
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RuntimeError):
        fits = False
    if not fits:
        raise RuntimeError(
            f"The state of {place} should be a vector as it was saved, or the mean of vectors that"
            f" differ in their values only. Found another, of shape {tuple(vector.shape)} and"
            f" {vector.dtype}: load it as it was saved, or leave `{EXTRA}` of one module as it is."
        )
    return state


def _form_of(state: Any, parts: list[Tensor]) -> Any:
    """Returns the form of a state as JSON has it, and adds its numbers to ``parts``."""
    name = type(state).__name__
    if state is None or type(state) in (bool, str):
        return state
    if type(state) in (list, tuple):
        return {name: [_form_of(each, parts) for each in state]}
    if type(state) is dict:
        return {name: [[str.__str__(k), _form_of(state[k], parts)] for k in sorted(state)]}
    if name in _NUMBERS:
        tensor = torch.tensor(state, dtype=_NUMBERS[name])
    else:
        tensor, name = state, _NAME_OF[state.dtype] if type(state) is Tensor else ""
        if not name or tensor.is_meta or tensor.layout is not torch.strided:
            raise TypeError
    numbers = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if tensor.dtype == torch.int64:
        high = tensor.div(_LIMB, rounding_mode="floor")
        numbers = torch.stack((high, tensor - high * _LIMB))
    parts.append(numbers.detach().reshape(-1))
    return {name: list(tensor.shape)}


def _state_of(form: Any, numbers: _Numbers) -> Any:
    """Returns the state of a form, with the numbers that come next."""
    if not isinstance(form, dict):
        return form
    ((name, value),) = form.items()
    if name == "dict":
        return {key: _state_of(each, numbers) for key, each in value}
    if name in ("list", "tuple"):
        found = [_state_of(each, numbers) for each in value]
        return found if name == "list" else tuple(found)
    if name in _NUMBERS:
        return numbers.tensor(_NUMBERS[name], value).item()
    return numbers.tensor(_DTYPES[name], value)


class _Numbers:
    """The numbers of a vector that were not read yet."""

    def __init__(self, left: Tensor) -> None:
        self.left = left

    def _take(self, count: int) -> Tensor:
        if not 0 <= count <= len(self.left):
            raise ValueError
        taken, self.left = self.left[:count], self.left[count:]
        return taken

    def tensor(self, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
        """Returns the next tensor, a copy."""
        count = math.prod(shape)
        if dtype.is_complex:
            pairs = self._take(2 * count).to(dtype.to_real(), copy=True)
            return torch.view_as_complex(pairs.reshape(*shape, 2))
        if dtype == torch.int64:
            high, low = self._take(2 * count).reshape(2, count)
            return (_rounded(high * _LIMB, dtype) + _rounded(low, dtype)).reshape(shape)
        numbers = self._take(count)
        if dtype == torch.bool:
            return numbers.round().bool().reshape(shape)
        if dtype.is_floating_point:
            return numbers.to(dtype, copy=True).reshape(shape)
        return _rounded(numbers, dtype).reshape(shape)


def _rounded(numbers: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns numbers as integers of a type that has them."""
    info = torch.iinfo(dtype)
    if not bool(((numbers >= info.min) & (numbers <= info.max)).all()):
        raise ValueError
    return numbers.round().to(dtype)
