"""The constraints that are registered on an updater, and run after each update."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from lightning_accum.distributed.shards import is_sharded, local

Constraint: TypeAlias = Callable[[Tensor], Any]
"""Changes a parameter in place."""

Limits: TypeAlias = "tuple[float | None, float | None]"
"""A lower and an upper limit, each of which may be missing."""

_ROUNDING = 1e-2  # relative; more than a step of bfloat16


class RegisteredConstraints:
    """Constraints in the order of their registration, each for some parameters or for all."""

    def __init__(self) -> None:
        self._entries: OrderedDict[int, tuple[Constraint, tuple[str, ...]]] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._entries)

    def register(
        self,
        fn: Constraint,
        names: tuple[str, ...],
        params: Mapping[str, Tensor | None],
        bounds: Mapping[str, Limits],
    ) -> RemovableHandle:
        """Adds a constraint.

        Args:
            fn: the constraint.
            names: the parameters that it is for; all of them if empty.
            params: those parameters by name; it is tried on copies of them.
            bounds: the limits of their bounds by name.

        Returns:
            A handle that removes it.

        Raises:
            TypeError: if ``fn`` is not callable, or returns a new tensor.
            ValueError: if limits leave no room, its own or with those of another constraint or of
                a bound.
        """
        if not callable(fn) or isinstance(fn, type):
            kind = type(fn).__name__
            found = f"the class `{fn.__name__}`" if isinstance(fn, type) else f"`{kind}`"
            raise TypeError(
                "Argument `fn` should be a callable that changes a parameter in place. Found"
                f" {found}: pass a function or an object, such as `Clamp(0.0, 1.0)`."
            )
        self._check_room(fn, names)
        for name, limits in bounds.items():
            _check_bound(fn, name, limits)
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
                    f" `{fn}` and `{other}`, which no two values satisfy: call `remove()` on the"
                    " handle of the other, name the parameter that each is for, or correct the"
                    " limits."
                )

    def check_bounds(self, bounds: Mapping[str, Limits]) -> None:
        """Raises a ``ValueError`` if a constraint and a bound leave a parameter no room.

        Args:
            bounds: the limits of bounds, by the name of their parameter.
        """
        for name, limits in bounds.items():
            for fn in self.of(name):
                _check_bound(fn, name, limits)

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

    def broken(self, params: Mapping[str, Tensor]) -> list[str]:
        """Returns names of parameters that do not keep their constraints; waits for the device.

        Only those are certain whose constraints change them once, and not again in a second run.

        Args:
            params: the parameters by name.
        """
        return [name for name in params if _is_broken([*self.of(name)], params[name])]

    def limits(self, name: str, lower: float | None, upper: float | None) -> Limits:
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


def _limits(fn: Constraint) -> Limits:
    limits: Limits = getattr(fn, "weight_limits", (None, None))
    return limits


def _leaves_no_room(lowest: float | None, highest: float | None) -> bool:
    return lowest is not None and highest is not None and lowest >= highest


def _check_bound(fn: Constraint, name: str, bound: Limits) -> None:
    (lowest, highest), (lower, upper) = _limits(fn), bound
    if _leaves_no_room(lowest, upper) or _leaves_no_room(lower, highest):
        limits = f"from {'-inf' if lower is None else lower} to {'inf' if upper is None else upper}"
        raise ValueError(
            f"A constraint and the bounds of a parameter should leave room for it to change. Found"
            f" `{fn}`, and bounds of `{name}` that keep it {limits}: correct the limits of one"
            " of them, or name the parameter that the constraint is for."
        )


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


@torch.no_grad()
def _is_broken(constraints: Sequence[Constraint], param: Tensor) -> bool:
    """Returns whether constraints would change a parameter, and would do so only once."""
    once = param.detach().clone()
    try:
        for fn in constraints:
            fn(once)
        twice = once.clone()
        for fn in constraints:
            fn(twice)
    except Exception:
        return False
    same = partial(torch.allclose, rtol=_ROUNDING, atol=1e-6, equal_nan=True)
    return same(once, twice) and not same(once, param.detach())


def _check_in_place(name: str, param: Tensor, result: Any) -> None:
    if isinstance(result, Tensor) and not _share_memory(result, param):
        raise TypeError(
            f"The constraint on `{name}` should change the parameter in place. Found one that"
            " returns a new tensor, which would be lost: use `clamp_`, `copy_` and the like."
        )


def _share_memory(result: Tensor, param: Tensor) -> bool:
    """Returns whether a tensor is a parameter or a part of it."""
    mine, its = (local(each).untyped_storage().data_ptr() for each in (result, param))
    return mine == its
