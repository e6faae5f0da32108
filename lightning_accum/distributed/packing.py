"""Converts states to bytes and back, to send them to other processes."""

from __future__ import annotations

import io
import pickle
from typing import Any

import torch
from torch import Tensor


def to_bytes(states: Any) -> bytes:
    """Converts states to bytes; tensors are written compactly, other objects by pickle.

    Args:
        states: tensors and any other objects that can be pickled, nested as you like.
    """
    file = io.BytesIO()
    _Writer(file, protocol=5).dump(states)
    return file.getvalue()


def from_bytes(data: bytes) -> Any:
    """Returns the states that :func:`to_bytes` converted.

    Args:
        data: bytes from a process of the same job; pickle would run code from anywhere else.
    """
    return pickle.loads(data)


class _Writer(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            return NotImplemented
        plain = obj.detach().cpu().resolve_conj().resolve_neg().contiguous()
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
        return _tensor, (data, plain.dtype, tuple(plain.shape), obj.device.type)


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...], device: str) -> Tensor:
    if not data:
        return torch.empty(shape, dtype=dtype, device=device)
    # The device has no index: each process uses its own current device of that type.
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape).to(device)
