"""Whether a module begins a window in the state that the window before left."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from lightning_accum._compat import version
from lightning_accum.nn import (
    LIF,
    AdaptiveLIF,
    Competition,
    DelayedLinear,
    LeakyIntegrator,
    SurrogateLIF,
)
from lightning_accum.observe.copies import kept_tensors
from lightning_accum.observe.state_reads import reads_state

NATIVE = (LIF, AdaptiveLIF, SurrogateLIF, Competition, LeakyIntegrator, DelayedLinear)
"""The modules of this package that keep a state."""

_RESETS = ("reset_mem", "reset", "reset_state", "reset_state_variables", "reset_states")

_Marks = dict[str, tuple[weakref.ref[Tensor], float, tuple[int, ...]]]  # version and shape, by name


class KeptState:
    """Compares the state of a module at its first call in a window with that after the last one.

    Args:
        whole: whether the module takes whole sequences, ``[T, B, ...]``.

    Example:
        >>> import torch
        >>> class Leaky(nn.Module):
        ...     v = torch.zeros(2, 3)
        ...     def forward(self, x):
        ...         self.v = 0.5 * self.v + x
        ...         return self.v
        >>> leaky, kept = Leaky(), KeptState(whole=False)
        >>> for x in torch.rand(3, 2, 3):
        ...     print(kept.begins(leaky, (x,), {}, surely=True))
        ...     y = leaky(x)
        ...     kept.ended(leaky)
        False
        True
        True
    """

    def __init__(self, whole: bool) -> None:
        self._whole = whole
        self._met: _Marks | None = None  # what it began this window with
        self._left: _Marks = {}  # what it changed in the window before
        self.name = ""  # the first tensor that it kept

    def begins(self, module: nn.Module, args: Any, kwargs: dict[str, Any], surely: bool) -> bool:
        """Returns whether a window begins in the state that the window before left.

        Args:
            module: the module, before its first call.
            args: the positional arguments of the call.
            kwargs: its keyword arguments.
            surely: whether to look at the values, too: at rest, all samples have the same state,
                and the output of a module does not depend on what is only a record. This waits for
                the device.
        """
        given = [each for each in (*args, *kwargs.values()) if each is not None]
        changed, now = self._left, dict(_states(module))
        self._left, self._met = {}, _marks(now)
        if len(given) != 1 or not isinstance(given[0], Tensor):  # the call is given a state too
            return False
        shape = given[0].shape[1 if self._whole else 0 :]
        left = {name: was for name, was in changed.items() if was[2][-len(shape) :] == shape}
        self.name = next(iter(left), "")
        if not left or not all(_is_same(now.get(name), left[name]) for name in left):
            return False
        if not surely or isinstance(module, NATIVE):
            return True
        constant = {id(tensor) for name, tensor in now.items() if name not in changed}
        state = [t for t in kept_tensors(module) if t.shape[-len(shape) :] == shape]
        state = [t for t in state if id(t) not in constant and not _rests(t, len(shape))]
        return bool(state) and reads_state(module, state, args, kwargs)

    def ended(self, module: nn.Module) -> None:
        """Notes the state at the end of a window."""
        now, met = dict(_states(module)), self._met
        if met is not None:
            marks = _marks(now).items()
            self._left = {n: was for n, was in marks if not _is_same(now[n], met.get(n))}
        self._met = None


def reset_of(module: nn.Module) -> str | None:
    """Returns the name of the method that resets a module, ``None`` if it has none."""
    return next((each for each in _RESETS if callable(getattr(module, each, None))), None)


def _rests(state: Tensor, dims: int) -> bool:
    """Returns whether all samples have the same state, or all neurons of a single one."""
    batch = state.ndim - dims
    if not state.numel() or state.is_complex():
        return False
    if state.shape[batch] == 1:
        return bool(state.amin() == state.amax())
    return bool((state.amin(batch) == state.amax(batch)).all())


def _states(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yields the tensors that a module and its submodules keep, other than parameters."""
    inner = [("", module)] if isinstance(module, NATIVE) else module.named_modules()
    for path, owner in inner:
        for name, value in _attributes(owner):
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                yield f"{path}.{name}" if path else name, value


def _attributes(module: nn.Module) -> Iterator[tuple[str, Any]]:
    for name, value in vars(module).items():
        if isinstance(value, dict):  # such as the buffers
            yield from value.items()
        else:
            yield name, value


def _marks(states: dict[str, Tensor]) -> _Marks:
    return {name: (weakref.ref(t), version(t), t.shape) for name, t in states.items()}


def _is_same(
    now: Tensor | None, left: tuple[weakref.ref[Tensor], float, tuple[int, ...]] | None
) -> bool:
    if now is None or left is None:
        return False
    return left[0]() is now and version(now) == left[1]
