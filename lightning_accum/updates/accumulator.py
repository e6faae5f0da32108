"""The accumulator of one parameter: both parts of its pending change, and their bounds."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from lightning_accum import _checked_state as states
from lightning_accum._checks import check_taken, check_tensors, name_of
from lightning_accum.functional.bounds import FullBounding, HalfBounding, Kind
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.updates.parameter_bounds import Side, saved_bounds
from lightning_accum.updates.part import check_part
from lightning_accum.updates.pending import Pending, check_apart, checked_reduction

_SETTERS = frozenset({"reduction", "upperbound", "lowerbound", "fullbound"})


class Accumulator(states.CheckedState):
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

    def __init__(self, shape: torch.Size | None = None, *, name: str = "parameter") -> None:
        super().__init__()
        try:
            self.shape = None if shape is None else torch.Size(shape)
        except (TypeError, RuntimeError):
            raise TypeError(
                "Argument `shape` should be the shape of a parameter, or None. Found"
                f" `{type(shape).__name__}`."
            ) from None
        self.name = name
        self.pending = Pending(self.shape, name)
        self._read: dict[str, weakref.ref[Tensor]] = {}  # copies that were read last

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("pos", "neg"):
            # nn.Module would register an nn.Parameter that is assigned here.
            object.__setattr__(self, name, value)
            return
        if name in _SETTERS:
            found = repr(value) if isinstance(value, str) else name_of(value)
            raise AttributeError(
                f"`{name}` of `{self.name}` should be called to be set. Found `{found}` assigned"
                f" to it, which would have no effect: call `{name}({found}, ...)`."
            )
        super().__setattr__(name, value)

    # ------------------------------------------------------------------ contributions
    @property
    def pos(self) -> Tensor | None:
        """A copy of the potentiating part; assigning adds to the part, and ``del`` empties it."""
        return self._copy("pos")

    @pos.setter
    def pos(self, value: Tensor | None) -> None:
        self._check_new("pos", value)
        self.accumulate(pos=value)

    @pos.deleter
    def pos(self) -> None:
        self.pending.readable().clear("pos")

    @property
    def neg(self) -> Tensor | None:
        """A copy of the depressing part; assigning adds to the part, and ``del`` empties it."""
        return self._copy("neg")

    @neg.setter
    def neg(self, value: Tensor | None) -> None:
        self._check_new("neg", value)
        self.accumulate(neg=value)

    @neg.deleter
    def neg(self) -> None:
        self.pending.readable().clear("neg")

    def _copy(self, which: str) -> Tensor | None:
        """Returns a copy of a reduced part, and remembers it."""
        self._read.pop(which, None)
        value = self.pending.readable().parts()[which == "neg"]
        if value is None:
            return None
        copy = value.clone()
        self._read[which] = weakref.ref(copy)
        return copy

    def _check_new(self, which: str, value: Tensor | None) -> None:
        """Raises a ``ValueError`` if a value is the copy that was read last, as with ``+=``."""
        label = f"{self.name}.{which}"
        if value is not None and which in self._read and value is self._read[which]():
            raise ValueError(
                f"A value assigned to `{label}` should be a new contribution, which is added to"
                " what is pending. Found the tensor that was read from there, as with `+=`, by"
                f" which what is pending would count twice: write `{label} = value` to add"
                f" `value`, and `del {label}` before it to replace what is pending."
            )

    def accumulate(self, pos: Tensor | None = None, neg: Tensor | None = None) -> None:
        """Adds a contribution to each part that is given.

        Args:
            pos: change upwards, non-negative, broadcastable to the parameter's shape.
            neg: change downwards, non-negative; it will be subtracted.

        Raises:
            TypeError: if a contribution is not a tensor.
            ValueError: if a contribution does not fit the parameter's shape.
        """
        self.pending.add(pos, neg)

    def clear(self, **kwargs: Any) -> None:
        """Drops everything that is pending; the reduction and the bounds stay."""
        self.pending.clear()

    @property
    def empty(self) -> bool:
        """Whether nothing is pending."""
        return not len(self.pending)

    # ------------------------------------------------------------------ settings
    def reduction(self, fn: ReductionFn | str | None = None) -> None:
        """Sets how contributions to a part are reduced.

        Args:
            fn: ``fn(stacked, dim) -> Tensor``; ``None`` is :func:`torch.sum`. Sum, mean, amax and
                amin stream, in the memory of one tensor; any other callable sees every
                contribution.

        Raises:
            RuntimeError: if contributions are pending.
        """
        new = checked_reduction(self.pending, fn)
        self.pending.pos.reduction = self.pending.neg.reduction = new

    @property
    def keep_parts(self) -> bool | None:
        """Whether rules add both parts, even if nothing needs each."""
        return self.pending.keep_parts

    @keep_parts.setter
    def keep_parts(self, keep: bool | None) -> None:
        self.pending.keep_parts = keep

    def _set_bound(
        self, side: Side, bound: Any, limits: dict[str, float | None], options: dict[str, Any]
    ) -> None:
        if bound is not None:
            check_apart(self.pending, "bounded")
        # Limits that are not given by position may come by name.
        limits = {k: options.pop(k, None) if v is None else v for k, v in limits.items()}
        self.pending.bounds.set(side, bound, limits, options)

    def upperbound(
        self, bound: Kind | HalfBounding | None, max: float | None = None, /, **kw: Any
    ) -> None:
        """Sets the bound on the potentiating part; replaces a full bound.

        The arguments are those of :meth:`fullbound`, but for ``bound(param, update, limit, **kw)``
        and the keyword ``range``, max − min, of a scaled bound.
        """
        self._set_bound("upper", bound, {"max": max}, kw)

    def lowerbound(
        self, bound: Kind | HalfBounding | None, min: float | None = None, /, **kw: Any
    ) -> None:
        """Sets the bound on the depressing part, as :meth:`upperbound` does on the other one."""
        self._set_bound("lower", bound, {"min": min}, kw)

    def fullbound(
        self,
        bound: Kind | FullBounding | None,
        max: float | None = None,
        min: float | None = None,
        /,
        **kw: Any,
    ) -> None:
        r"""Sets the bound on both parts; replaces half bounds, and ``None`` removes them all.

        =========================  =================================================
        bound                      of the potentiating part :math:`u`, what is left
        =========================  =================================================
        ``power``                  :math:`(w_{\max} - w)^\mu \, u`
        ``scaled_power``           :math:`((w_{\max} - w) / (w_{\max} - w_{\min}))^\mu \, u`
        ``multiplicative``         ``power`` with :math:`\mu = 1`
        ``scaled_multiplicative``  ``scaled_power`` with :math:`\mu = 1`
        ``sharp``                  :math:`[w < w_{\max}] \, u`
        =========================  =================================================

        The depressing part is bounded likewise by :math:`w - w_{\min}`. A weight beyond a limit
        takes none of the part that would move it further out; under ``sharp``, one update may step
        over the limit.

        Args:
            bound: one of these names, ``bound(param, pos, neg, max, min, **kw)``, or ``None`` for
                none.
            max: the upper limit.
            min: the lower limit.
            **kw: passed to the bound: ``power`` :math:`\mu > 0`, 1 by default, and ``upper_power``
                or ``lower_power`` for one side.

        Raises:
            TypeError: if the bound does not take one of the keywords.
            ValueError: if the bound has no such name, a limit is missing, or a power is not
                positive.

        Example:
            >>> import torch
            >>> from lightning_accum import Accumulator
            >>> acc = Accumulator()
            >>> acc.fullbound("power", 1.0, 0.0, power=2.0)
            >>> acc.pos = torch.ones(1)
            >>> acc.update(torch.full((1,), 0.5))
            tensor([0.2500])

        Source:
            Gütig, Aharonov, Rotter & Sompolinsky (2003), doi:10.1523/JNEUROSCI.23-09-03697.2003;
            Rubin, Lee & Sompolinsky (2001), doi:10.1103/PhysRevLett.86.364; Morrison, Diesmann &
            Gerstner (2008), doi:10.1007/s00422-008-0233-1.
        """
        self._set_bound("full", bound, {"max": max, "min": min}, kw)

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The lower and the upper limit, ``None`` for a side without."""
        return self.pending.bounds.limits

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
        bounds = self.pending.bounds
        check_taken("Accumulator.update", kwargs, (), bounds.takes)
        self.pending.noticed = True
        with torch.no_grad():
            parts = self.pending.parts(param)
            return bounds.with_options(kwargs).change(param.detach(), *parts)

    def forward(self, param: Tensor, **kwargs: Any) -> Tensor:
        """Returns the parameter with its change, as :meth:`update` computes it, as a new tensor."""
        delta = self.update(param, **kwargs)
        with torch.no_grad():
            base = param.detach()
            return base.clone() if delta is None else (base + delta).to(base.dtype)

    # ------------------------------------------------------------------ state
    def get_extra_state(self) -> dict[str, Any]:
        """Returns copies of what is pending, and the bounds of this package by name."""
        pending = self.pending
        pos, neg = ((), ()) if pending.waiting is None else pending.waiting.products()
        return {
            "pos": pending.pos.state(pos),
            "neg": pending.neg.state(neg),
            "combined": pending.combined and len(pending) > 0,
            "reduction": pending.pos.reduction.name,
            "bounds": pending.bounds.state(),
        }

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        place, here = f"`{self.name}`", self.pending.pos.reduction
        kinds = dict.fromkeys(("pos", "neg"), states.MAPPING)
        kinds |= {"combined": states.FLAG, "reduction": states.TEXT}
        states.check_state(place, state, {**kinds, "bounds": states.named(states.MAPPING)})
        counts = [state[which].get("count") for which in ("pos", "neg")]
        pending = any(states.COUNT.fits(count) and count > 0 for count in counts)
        if pending and state["reduction"] != here.name:
            raise RuntimeError(
                f"The state of {place}, which has contributions pending, should reduce them as"
                f" this accumulator does, by `{here.name}`. Found `{state['reduction']}`: call"
                " `reduction(...)` before loading."
            )
        for which in ("pos", "neg"):
            check_part(f"{place}, part `{which}`,", state[which], here, self.shape)
        if saved_bounds(self.name, state["bounds"]) or self.pending.bounds:
            states.check_that(
                not state["combined"], place, "both parts, for its bounds", "their difference"
            )

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Loads a copy of the state that :meth:`get_extra_state` returned, if it fits."""
        self.check_extra_state(state)
        found = saved_bounds(self.name, state["bounds"])
        pending = self.pending
        pending.bounds.load(self.name, found)  # warns before anything changes
        pending.waiting = pending.record = None
        pending.combined = state["combined"]
        waited = pending.pos.load(state["pos"]), pending.neg.load(state["neg"])
        pending.add_products(*waited, any_size=True)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_read": {}}

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for call in self.pending.moving(lambda value: value.to(fn(value.new_empty(0)).device)):
            call()
        return self

    def extra_repr(self) -> str:
        """Shows name, shape, reduction and bounds."""
        pending, shape = self.pending, "?" if self.shape is None else tuple(self.shape)
        how = pending.pos.reduction.name
        return f"{self.name}, {shape}, reduction={how}, bounds={list(pending.bounds)}"
