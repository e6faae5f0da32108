"""A pending change with bounds, which shape it by the parameter's value."""

from __future__ import annotations

from typing import Any

import torch

from lightning_accum._checks import name_of
from lightning_accum.functional.bounds import FullBounding, HalfBounding
from lightning_accum.updates.bound import Side
from lightning_accum.updates.bounds import Bounds
from lightning_accum.updates.combined import CombinedChange

_SETTERS = frozenset({"reduction", "upperbound", "lowerbound", "fullbound"})


class BoundedChange(CombinedChange):
    """Holds the bounds that both parts of a pending change are applied within.

    Args:
        shape: the parameter's shape; if it is given, contributions have to broadcast to it.
        name: the parameter's name, for messages.
    """

    def __init__(self, shape: torch.Size | None = None, *, name: str = "parameter") -> None:
        super().__init__(shape, name=name)
        self._bounds = Bounds()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SETTERS:
            found = name_of(value)
            raise AttributeError(
                f"`{name}` of `{self.name}` should be called to be set. Found `{found}` assigned"
                f" to it, which would have no effect: call `{name}({found}, ...)`."
            )
        super().__setattr__(name, value)

    def _set_bound(
        self, side: Side, bound: Any, limits: dict[str, float | None], options: dict[str, Any]
    ) -> None:
        if bound is not None:
            self._check_apart("bounded")
        # Limits that are not given by position may come by name.
        limits = {k: options.pop(k, None) if v is None else v for k, v in limits.items()}
        self._bounds.set(side, bound, limits, options)

    def upperbound(
        self, bound: HalfBounding | None, max: float | None = None, /, **kw: Any
    ) -> None:
        """Sets the bound on the potentiating part; replaces a full bound.

        Args:
            bound: ``bound(param, update, limit, **kw)``, or ``None`` for none.
            max: the upper limit.
            **kw: passed to the bound.

        Raises:
            ValueError: if there is a bound and no limit, or the upper limit is not above the lower.
        """
        self._set_bound("upper", bound, {"max": max}, kw)

    def lowerbound(
        self, bound: HalfBounding | None, min: float | None = None, /, **kw: Any
    ) -> None:
        """Sets the bound on the depressing part; replaces a full bound.

        Args:
            bound: ``bound(param, update, limit, **kw)``, or ``None`` for none.
            min: the lower limit.
            **kw: passed to the bound.

        Raises:
            ValueError: if there is a bound and no limit, or the upper limit is not above the lower.
        """
        self._set_bound("lower", bound, {"min": min}, kw)

    def fullbound(
        self,
        bound: FullBounding | None,
        max: float | None = None,
        min: float | None = None,
        /,
        **kw: Any,
    ) -> None:
        """Sets the bound on both parts; replaces half bounds, and ``None`` removes them all.

        Args:
            bound: ``bound(param, pos, neg, max, min, **kw)``, or ``None`` for none.
            max: the upper limit.
            min: the lower limit.
            **kw: passed to the bound.

        Raises:
            ValueError: if there is a bound and a limit is missing.

        Example:
            >>> import torch
            >>> from lightning_accum import Accumulator
            >>> from lightning_accum.functional import bound_power
            >>> acc = Accumulator()
            >>> acc.fullbound(bound_power, 1.0, 0.0, power=2.0)
            >>> acc.pos = torch.ones(1)
            >>> acc.update(torch.full((1,), 0.5))
            tensor([0.2500])
        """
        self._set_bound("full", bound, {"max": max, "min": min}, kw)

    @property
    def bounded(self) -> bool:
        """Whether any bound is set."""
        return bool(self._bounds)

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The lower and the upper limit, ``None`` for a side without."""
        return self._bounds.limits
