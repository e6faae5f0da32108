"""The accumulator of one parameter: a pending change, and the bounds that it is applied within."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_taken, check_tensors
from lightning_accum._state import COUNT, FLAG, MAPPING, TEXT, check_state, check_that, named
from lightning_accum.updates.bounded import BoundedChange
from lightning_accum.updates.bounds import saved_bounds
from lightning_accum.updates.known import check_known
from lightning_accum.updates.part import Part
from lightning_accum.updates.part_state import check_part

_ATTRIBUTES = (
    "assign to `pos`, `neg` or `keep_parts`, or call `upperbound`, `lowerbound`, `fullbound` or"
    " `reduction`"
)


class Accumulator(BoundedChange):
    r"""Accumulates the potentiating and the depressing part of a parameter's change.

    .. math:: \Delta w = B_+(w, \operatorname{reduce}(\mathrm{pos}))
              - B_-(w, \operatorname{reduce}(\mathrm{neg}))

    with :math:`B_\pm` the bounds, the identity if none is set. Both parts are non-negative by
    convention; if there is a bound, negative values of one part count for the other. Contributions
    are copied, and so is what is read: a change of ``acc.pos`` in place has no effect, and
    ``acc.pos += value`` is rejected. Parts are kept in at least float32, so that a parameter in a
    narrow dtype does not lose small updates.

    A rule adds both parts. If ``keep_parts`` is set to ``False``, contributions are summed and
    there is no bound, it adds their difference instead, which is faster; the parts cannot be read
    then. If it is ``None``, the default, a callback that applies each batch at once does the same.

    Args:
        shape: the parameter's shape; if it is given, contributions have to broadcast to it.
        name: the parameter's name, for messages.

    Example:
        >>> import torch
        >>> acc = Accumulator()
        >>> acc.pos, acc.neg = torch.tensor([1.0, 2.0]), torch.tensor([0.5, 0.5])
        >>> acc.pos = torch.tensor([1.0, 0.0])  # adds
        >>> acc.update(torch.zeros(2))
        tensor([1.5000, 1.5000])
    """

    _complete = False

    def __init__(self, shape: torch.Size | None = None, *, name: str = "parameter") -> None:
        super().__init__(shape, name=name)
        self._complete = type(self) is Accumulator  # a subclass may have attributes of its own

    def __setattr__(self, name: str, value: Any) -> None:
        if self._complete and name not in self.__dict__:
            check_known(self, name, f"`{self.name}`", _ATTRIBUTES)
        super().__setattr__(name, value)

    def sibling(self) -> Accumulator:
        """Returns an empty accumulator for the same parameter, which shares the bounds."""
        other = Accumulator(self.shape, name=self.name)
        other._bounds, other.keep_parts = self._bounds, self.keep_parts
        other._pos, other._neg = Part(self._pos.reduction), Part(self._neg.reduction)
        return other

    # ------------------------------------------------------------------ the change
    def update(self, param: Tensor, **kwargs: Any) -> Tensor | None:
        """Returns the bounded change of ``param``; applies nothing and clears nothing.

        Args:
            param: the parameter's current value.
            **kwargs: options of the bounds, which replace for this call those that were set.

        Returns:
            The change as a new tensor in at least float32, or ``None`` if nothing is pending.

        Raises:
            TypeError: if no bound takes one of the keywords.
            ValueError: if the pending contributions do not fit ``param``.
        """
        check_tensors(param=param)
        check_taken("Accumulator.update", kwargs, (), self.takes)
        self.note_look()
        with torch.no_grad():
            return self.delta(param.detach(), self.parts(param), kwargs)

    def forward(self, param: Tensor, **kwargs: Any) -> Tensor:
        """Returns the parameter with its change applied, as a new tensor.

        Args:
            param: the parameter's current value.
            **kwargs: options of the bounds, as for :meth:`update`.
        """
        delta = self.update(param, **kwargs)
        with torch.no_grad():
            base = param.detach()
            return base.clone() if delta is None else (base + delta).to(base.dtype)

    def takes(self, name: str) -> bool:
        """Returns whether one of the bounds takes a keyword."""
        return self._bounds.takes(name)

    def delta(
        self,
        param: Tensor,
        parts: tuple[Tensor | None, Tensor | None],
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> Tensor | None:
        """Returns the bounded change that ``parts`` make to ``param``; ``None`` for empty parts.

        Args:
            param: the parameter's current value.
            parts: both reduced parts.
            options: keywords for the bounds that take them.
        """
        if self.bounded:  # a sibling may have set a bound since
            self._check_apart("bounded")
        return self._bounds.with_options(options).change(param, *parts)

    # ------------------------------------------------------------------ state
    def get_extra_state(self) -> dict[str, Any]:
        """Returns copies of what is pending, and the bounds of this package by name."""
        return {
            "pos": self._pos.state(),
            "neg": self._neg.state(),
            "combined": self.combined,
            "reduction": self._pos.reduction.name,
            "bounds": self._bounds.state(),
        }

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        place, here = f"`{self.name}`", self._pos.reduction
        kinds = {"pos": MAPPING, "neg": MAPPING, "combined": FLAG, "reduction": TEXT}
        check_state(place, state, {**kinds, "bounds": named(MAPPING)})
        counts = [state[which].get("count") for which in ("pos", "neg")]
        pending = any(COUNT.fits(count) and count > 0 for count in counts)
        if pending and state["reduction"] != here.name:
            raise RuntimeError(
                f"The state of {place}, which has contributions pending, should reduce them as"
                f" this accumulator does, by `{here.name}`. Found `{state['reduction']}`: call"
                " `reduction(...)` before loading."
            )
        for which in ("pos", "neg"):
            check_part(f"{place}, part `{which}`,", state[which], here, self.shape)
        if saved_bounds(self.name, state["bounds"]) or self.bounded:
            check_that(
                not state["combined"], place, "both parts, for its bounds", "their difference"
            )

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Loads a copy of the state that :meth:`get_extra_state` returned.

        Raises:
            RuntimeError: if it does not fit, or contributions are pending there under another
                reduction than here; then nothing has changed.
        """
        self.check_extra_state(state)
        found = saved_bounds(self.name, state["bounds"])
        self._bounds.load(self.name, found)  # warns before anything changes
        self._pos.load(state["pos"])
        self._neg.load(state["neg"])
        self._combined = state["combined"]
        self.records.clear()

    def extra_repr(self) -> str:
        """Shows name, shape, reduction and bounds."""
        shape, how = "?" if self.shape is None else tuple(self.shape), self._pos.reduction.name
        return f"{self.name}, {shape}, reduction={how}, bounds={self._bounds.sides}"
