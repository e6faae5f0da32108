"""The constraints that are registered on an updater, and run after each update."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from lightning_accum.distributed.shards import is_sharded

Constraint: TypeAlias = Callable[[Tensor], Any]
"""Changes a parameter in place."""


class RegisteredConstraints:
    """Constraints in the order of their registration, each for some parameters or for all."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, tuple[Constraint, tuple[str, ...]]] = OrderedDict()

    def register(
        self, fn: Constraint, names: tuple[str, ...], params: Mapping[str, Tensor | None]
    ) -> RemovableHandle:
        """Adds a constraint.

        Args:
            fn: the constraint.
            names: the parameters that it is for; all of them if empty.
            params: those parameters by name; it is tried on copies of them.

        Returns:
            A handle that removes it.

        Raises:
            TypeError: if ``fn`` is not callable, or returns a new tensor.
            ValueError: if limits leave no room, its own or with those of another constraint.
        """
        if not callable(fn):
            raise TypeError(
                "Argument `fn` should be a callable that changes a parameter in place."
                f" Found `{type(fn).__name__}`."
            )
        self._check_room(fn, names)
        for name, param in params.items():
            if param is not None and not is_sharded(param):
                _try(fn, name, param)
        handle = RemovableHandle(self._entries)
        while handle.id in self._entries:  # pickled in another process
            handle = RemovableHandle(self._entries)
        self._entries[handle.id] = (fn, names)
        return handle

    def _check_room(self, fn: Constraint, names: tuple[str, ...]) -> None:
        """Raises a ``ValueError`` if a parameter would have no room between its limits."""
        lowest, highest = _limits(fn)
        if _leaves_no_room(lowest, highest):
            raise ValueError(
                f"The limits of a constraint should leave room for weights to change. Found `{fn}`,"
                " which sets all to one value: give it a `max` above its `min`, or give the"
                " rule only the `params` that should learn."
            )
        for other, of in self._entries.values():
            if names and of and not {*names} & {*of}:
                continue
            lower, upper = _limits(other)
            if _leaves_no_room(lowest, upper) or _leaves_no_room(lower, highest):
                raise ValueError(
                    f"Constraints on one parameter should leave room for it to change. Found"
                    f" `{fn}` beside `{other}`, which no two values satisfy: call `remove()` on the"
                    " handle of the other, name the parameter that each is for, or correct the"
                    " limits."
                )

    def of(self, name: str) -> Iterator[Constraint]:
        """Yields the constraints of a parameter."""
        return (fn for fn, names in self._entries.values() if not names or name in names)

    def run(self, names: Iterable[str], find: Callable[[str], Tensor]) -> None:
        """Runs every constraint on those of its parameters that have changed.

        Args:
            names: the parameters that have changed.
            find: returns the parameter of a name.

        Raises:
            TypeError: if a constraint returns a new tensor instead of changing its own.
        """
        if self._entries:
            self._run(names, find)

    @torch.no_grad()
    def _run(self, names: Iterable[str], find: Callable[[str], Tensor]) -> None:
        for fn, only in self._entries.values():
            for name in names:
                if not only or name in only:
                    param = find(name)
                    _check_in_place(name, param, fn(param))

    def limits(
        self, name: str, lower: float | None, upper: float | None
    ) -> tuple[float | None, float | None]:
        """Returns the limits of a parameter, those of its bounds if no constraint sets others.

        A constraint that keeps a parameter between limits has them as ``weight_limits``.

        Args:
            name: the parameter's name.
            lower: the lower limit of its bounds.
            upper: the upper limit of its bounds.
        """
        for fn in self.of(name):
            lowest, highest = _limits(fn)
            lower = lower if lowest is None else lowest
            upper = upper if highest is None else highest
        return lower, upper


def _limits(fn: Constraint) -> tuple[float | None, float | None]:
    limits: tuple[float | None, float | None] = getattr(fn, "weight_limits", (None, None))
    return limits


def _leaves_no_room(lowest: float | None, highest: float | None) -> bool:
    return lowest is not None and highest is not None and lowest >= highest


@torch.no_grad()
def _try(fn: Constraint, name: str, param: Tensor) -> None:
    """Raises a ``TypeError`` if a constraint does not change a parameter in place."""
    copy = param.detach().clone()
    try:
        result = fn(copy)
    except Exception:
        # It may expect weights of another kind than these first ones; if not, it will raise again
        # when it runs on them.
        return
    _check_in_place(name, copy, result)


def _check_in_place(name: str, param: Tensor, result: Any) -> None:
    if isinstance(result, Tensor) and result.data_ptr() != param.data_ptr():
        raise TypeError(
            f"The constraint on `{name}` should change the parameter in place. Found one that"
            " returns a new tensor, which would be lost: use `clamp_`, `copy_` and the like."
        )
