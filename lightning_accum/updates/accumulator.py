"""The accumulator of one parameter: both parts of its pending change, and their bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from typing_extensions import Self

from lightning_accum import _state as states
from lightning_accum._checks import check_taken, check_tensors, name_of
from lightning_accum.functional.bounds import FullBounding, HalfBounding, Kind, Room
from lightning_accum.functional.reductions import Reduction, ReductionFn
from lightning_accum.functional.reductions import reduction as find_reduction
from lightning_accum.updates.bounds import Bounds, Side, saved_bounds
from lightning_accum.updates.part import (
    Part,
    Product,
    StackedProducts,
    Write,
    check_part,
    checked_contribution,
    checked_products,
)

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
        self.keep_parts: bool | None = None
        self.may_combine = False  # used if `keep_parts` is None
        self.records: list[Self] = []
        self.noticed = False  # whether somebody has read what was pending
        self.cleared = 0  # contributions that were dropped
        self.of_all_processes = False  # whether the changes of all processes are pending
        self._pos, self._neg = Part(), Part()
        self._bounds = Bounds()
        self._combined = False

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
        self.noticed = True
        return self._readable(self._pos).read()

    @pos.setter
    def pos(self, value: Tensor | None) -> None:
        self._pos.check_new(f"{self.name}.pos", value)
        self.accumulate(pos=value)

    @pos.deleter
    def pos(self) -> None:
        self._readable(self._pos).clear()

    @property
    def neg(self) -> Tensor | None:
        """A copy of the depressing part; assigning adds to the part, and ``del`` empties it."""
        self.noticed = True
        return self._readable(self._neg).read()

    @neg.setter
    def neg(self, value: Tensor | None) -> None:
        self._neg.check_new(f"{self.name}.neg", value)
        self.accumulate(neg=value)

    @neg.deleter
    def neg(self) -> None:
        self._readable(self._neg).clear()

    def accumulate(self, pos: Tensor | None = None, neg: Tensor | None = None) -> None:
        """Adds a contribution to each part that is given.

        Args:
            pos: change upwards, non-negative, broadcastable to the parameter's shape.
            neg: change downwards, non-negative; it will be subtracted.

        Raises:
            TypeError: if a contribution is not a tensor.
            ValueError: if a contribution does not fit the parameter's shape.
        """
        up = checked_contribution(f"{self.name}.pos", pos, *self._shapes(self._pos))
        down = checked_contribution(f"{self.name}.neg", neg, *self._shapes(self._neg))
        with torch.no_grad():
            for part, value in (self._pos, up), (self._neg, down):
                if value is not None:
                    part.add(value)

    def accumulate_outer(
        self,
        post: Tensor | Sequence[Tensor],
        pre: Tensor | Sequence[Tensor],
        scale: float | Sequence[float] = 1.0,
        *,
        negative: bool = False,
        keep: bool = False,
    ) -> None:
        r"""Adds ``scale`` · :math:`\sum_k \mathrm{post}_k \otimes \mathrm{pre}_k` to one part.

        The product is added to the running sum or mean directly, without a tensor of the
        parameter's size in between. Several products, given as sequences, are one contribution. If
        both sides are smaller than the parameter and there is no bound, copies of them are kept,
        and an updater that finds nothing else pending multiplies them into the parameter itself.

        Args:
            post: ``[K, out]``, or a sequence of such tensors.
            pre: ``[K, in]``, or a sequence of the same length; spikes may be boolean.
            scale: a factor, non-negative by convention, or a sequence with one for each product.
            negative: whether to add to the depressing part instead of the potentiating one.
            keep: whether the sides themselves may be kept, because nobody changes them.

        Raises:
            TypeError: if a side is not a tensor, or a factor is not a number.
            ValueError: if a product does not have the parameter's shape.

        Example:
            >>> import torch
            >>> from lightning_accum import Accumulator
            >>> acc = Accumulator()
            >>> acc.accumulate_outer(torch.ones(3, 2), torch.ones(3, 1))
            >>> acc.pos
            tensor([[3.],
                    [3.]])
        """
        which, part = ("neg", self._neg) if negative else ("pos", self._pos)
        products = checked_products(f"{self.name}.{which}", post, pre, scale, *self._shapes(part))
        if products:
            part.add_products(products, defer=not self.bounded, keep=keep)

    def accumulate_written(
        self,
        write: Write,
        shape: torch.Size,
        dtype: torch.dtype,
        device: torch.device,
        *,
        negative: bool = False,
    ) -> None:
        """Adds a contribution that ``write(total, onto=...)`` writes to memory that keeps it."""
        which, part = ("neg", self._neg) if negative else ("pos", self._pos)
        like = torch.empty(shape, device="meta")
        checked_contribution(f"{self.name}.{which}", like, *self._shapes(part))
        part.add_written(write, shape, dtype, device)

    def _shapes(self, part: Part) -> tuple[torch.Size | None, torch.Size | None]:
        """Returns the parameter's shape or, if it is not known, that of what a part holds."""
        return self.shape, part.shape if self.shape is None else None

    def hold(self, stacked: StackedProducts) -> None:
        """Holds products, which nobody may change meanwhile, as the only contribution."""
        self._pos.hold(stacked.raised, stacked)
        self._neg.hold(stacked.lowered, stacked)

    def replace(self, pos: Tensor, neg: Tensor) -> None:
        """Replaces what is pending by its sum over processes, which may have combined parts."""
        combined = self.combines or self.combined
        self._pos.clear()
        self._neg.clear()
        self.accumulate(pos, neg)
        self._combined, self.of_all_processes = combined, True

    def clear(self, **kwargs: Any) -> None:
        """Drops everything that is pending; the reduction and the bounds stay."""
        if pending := max(self._pos.count, self._neg.count):
            self.cleared += pending
        self._pos.clear()
        self._neg.clear()
        if self._combined or self.of_all_processes:
            self._combined = self.of_all_processes = False
        self.records.clear()

    def rearranging(self, move: Callable[[Tensor], Tensor]) -> list[partial[None]]:
        """Returns calls that move the elements of what is pending, as the parameter's move."""
        calls = [*self._pos.rearranging(move), *self._neg.rearranging(move)]
        return calls + [call for record in self.records for call in record.rearranging(move)]

    def emptying_calls(self) -> list[partial[None]]:
        """Returns calls that empty both parts; :meth:`clear` then frees their memory."""
        calls = [partial(setattr, self._pos, "count", 0), partial(setattr, self._neg, "count", 0)]
        if self._combined:
            # The `__setattr__` of modules is Python code, in which an interrupt could leave this
            # half empty.
            calls.append(partial(object.__setattr__, self, "_combined", False))
        if self.records:
            calls.append(partial(self.records.clear))
        return calls

    # ------------------------------------------------------------------ what is pending
    @property
    def empty(self) -> bool:
        """Whether nothing is pending."""
        return self._pos.count == 0 and self._neg.count == 0

    @property
    def contributions(self) -> int:
        """The number of pending contributions, to the part that has more of them."""
        return max(self._pos.count, self._neg.count)

    @property
    def deferred(self) -> list[Product]:
        """The change as products with signed factors; empty if it holds anything else."""
        pos, neg = self._pos, self._neg
        raised, lowered = pos.deferred, neg.deferred
        if self._bounds or (pos.count and not raised) or (neg.count and not lowered):
            return []
        return [*raised, *[(left, right, -factor) for left, right, factor in lowered]]

    @property
    def stacked(self) -> StackedProducts | None:
        """The change as products that are stacked; ``None`` if it holds anything else."""
        found = self._pos.stacked
        return None if found is not self._neg.stacked or self._bounds else found

    @property
    def is_free(self) -> bool:
        """Whether :meth:`hold` may be called: nothing is pending, and nothing but sums."""
        return (
            self._pos.count == 0 == self._neg.count
            and self._pos.reduction.adds
            and not (self._bounds or self.records)
        )

    def parts(self, param: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Returns the reduced parts in ``param``'s shape, on its device, perhaps in this memory."""
        pos, neg = self._pos.value(), self._neg.value()
        if pos is not None and (pos.shape != param.shape or pos.device != param.device):
            pos = self._fitted(pos, param)
        if neg is not None and (neg.shape != param.shape or neg.device != param.device):
            neg = self._fitted(neg, param)
        return pos, neg

    def _fitted(self, value: Tensor, param: Tensor) -> Tensor:
        """Expands a reduced part to the shape of a parameter, on its device."""
        if value.shape != param.shape:
            try:
                value = value.expand(param.shape)
            except RuntimeError:
                raise ValueError(
                    f"The change pending for `{self.name}` should fit the parameter's shape"
                    f" {tuple(param.shape)}. Found shape {tuple(value.shape)}: drop it with"
                    " `clear()` and add contributions of the parameter's shape."
                ) from None
        return value.to(param.device)

    def known_parts(self) -> tuple[Tensor | None, Tensor | None]:
        """Returns both reduced parts without copies, valid until more is accumulated."""
        self.noticed = True
        return self._readable(self._pos).value(), self._readable(self._neg).value()

    def _readable(self, part: Part) -> Part:
        """Returns a part, or its record if the difference of both is pending."""
        if self.combined and self.records:
            return self.records[0]._pos if part is self._pos else self.records[0]._neg
        self._check_apart("read")
        return part

    # ------------------------------------------------------------------ the difference of both
    @property
    def sums(self) -> bool:
        """Whether contributions are summed, so that one may be added in pieces."""
        return self._pos.reduction.adds and not self._pos.reduction.averages

    @property
    def combines(self) -> bool:
        """Whether the difference of both parts may be added, because nothing needs each part."""
        wanted = self.may_combine if self.keep_parts is None else not self.keep_parts
        return wanted and self.sums and not self._bounds

    @property
    def combined(self) -> bool:
        """Whether a difference of both parts is pending."""
        return self._combined and not self.empty

    def note_combined(self) -> None:
        """Notes that what was added to the potentiating part is the difference of both."""
        self._combined = True

    def record_parts(self, record: Self | None = None) -> Self:
        """Returns a record, or the given one, to which rules add both parts until a clear."""
        if record is None:
            record = type(self)(self.shape, name=self.name)
        record.clear()
        if not self.empty:
            record.accumulate(*(part.value() for part in (self._pos, self._neg)))
        self.records[:] = [record]
        return record

    def _check_apart(self, what: str) -> None:
        """Raises a ``RuntimeError`` if the difference of both parts is pending."""
        if self.combined:
            raise RuntimeError(
                f"Both parts of the change of `{self.name}` should be known to be {what}. Found"
                " their difference, which a rule has added: apply it, or drop it with `clear()`,"
                " and set `keep_parts = True` of the accumulator before the rule runs."
            )

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
        self._pos.reduction = self._neg.reduction = self.check_reduction(fn)

    def check_reduction(self, fn: ReductionFn | str | None) -> Reduction:
        """Returns the reduction that :meth:`reduction` would set, or raises its error."""
        new = find_reduction(fn)
        if not self.empty and new != self._pos.reduction:
            raise RuntimeError(
                f"The reduction of `{self.name}` cannot change while contributions are pending:"
                " apply them with the updater, or drop them with `clear()`, first."
            )
        return new

    def _set_bound(
        self, side: Side, bound: Any, limits: dict[str, float | None], options: dict[str, Any]
    ) -> None:
        if bound is not None:
            self._check_apart("bounded")
        # Limits that are not given by position may come by name.
        limits = {k: options.pop(k, None) if v is None else v for k, v in limits.items()}
        self._bounds.set(side, bound, limits, options)

    def upperbound(
        self, bound: Kind | HalfBounding | None, max: float | None = None, /, **kw: Any
    ) -> None:
        """Sets the bound on the potentiating part; replaces a full bound.

        Args:
            bound: a name, as for :meth:`fullbound`, ``bound(param, update, limit, **kw)``, or
                ``None`` for none.
            max: the upper limit.
            **kw: passed to the bound: ``power``, or for a scaled bound ``range``, max − min.

        Raises:
            ValueError: if there is a bound and no limit, or the upper limit is not above the lower.
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
    def bounded(self) -> bool:
        """Whether any bound is set."""
        return bool(self._bounds)

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The lower and the upper limit, ``None`` for a side without."""
        return self._bounds.limits

    @property
    def rooms(self) -> tuple[Room | None, Room | None] | None:
        """The rooms of which both parts take a share; ``None`` if a bound is a user's own."""
        return self._bounds.rooms

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
        self.noticed = True
        with torch.no_grad():
            return self.delta(param.detach(), self.parts(param), kwargs)

    def forward(self, param: Tensor, **kwargs: Any) -> Tensor:
        """Returns the parameter with its change, as :meth:`update` computes it, as a new tensor."""
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
        """Returns the bounded change that reduced parts make to ``param``, ``None`` without any."""
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
        if saved_bounds(self.name, state["bounds"]) or self.bounded:
            states.check_that(
                not state["combined"], place, "both parts, for its bounds", "their difference"
            )

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Loads a copy of the state that :meth:`get_extra_state` returned, if it fits."""
        self.check_extra_state(state)
        found = saved_bounds(self.name, state["bounds"])
        self._bounds.load(self.name, found)  # warns before anything changes
        self._pos.load(state["pos"])
        self._neg.load(state["neg"])
        self._combined = state["combined"]
        self.records.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "may_combine": False}  # a copy is not in the fit of its original

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        for part in (self._pos, self._neg):
            part.move(fn)
        return self

    def extra_repr(self) -> str:
        """Shows name, shape, reduction and bounds."""
        shape, how = "?" if self.shape is None else tuple(self.shape), self._pos.reduction.name
        return f"{self.name}, {shape}, reduction={how}, bounds={list(self._bounds)}"
