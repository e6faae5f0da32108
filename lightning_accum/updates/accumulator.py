"""The pending change of one parameter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers, check_tensors
from lightning_accum._state import COUNT, MAPPING, TEXT, CheckedState, check_state, named
from lightning_accum.functional.bounds import FullBounding, HalfBounding
from lightning_accum.functional.reductions import Reduction, ReductionFn, reduction
from lightning_accum.updates.bounding import (
    Bound,
    bounds_in,
    checked_bound,
    is_ours,
    own_result,
    unsigned,
)
from lightning_accum.updates.part import Part, Product, shape_of
from lightning_accum.updates.part_state import check_part


class Accumulator(CheckedState):
    r"""Accumulates the potentiating and the depressing part of a parameter's change.

    .. math:: \Delta w = B_+(w, \operatorname{reduce}(\mathrm{pos}))
              - B_-(w, \operatorname{reduce}(\mathrm{neg}))

    with :math:`B_\pm` the bounds, where any are set. Both parts are non-negative by convention;
    where there is a bound, what is negative in one counts for the other.
    A contribution is copied: it is never written to, nor seen again. Parts are kept in float32 at
    least, so that a parameter in a narrow dtype does not lose small updates.

    Args:
        shape: the parameter's shape, where it is known; contributions are held to it when added.
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
        self._pos = Part()
        self._neg = Part()
        self._reduction: Reduction = reduction(None)
        self._bounds: dict[str, Bound] = {}

    # ------------------------------------------------------------------ the two parts
    @property
    def pos(self) -> Tensor | None:
        """The reduced potentiating part; assigning adds a contribution, ``del`` empties it."""
        return self._read(self._pos)

    @pos.setter
    def pos(self, value: Tensor | None) -> None:
        self.accumulate(pos=value)

    @pos.deleter
    def pos(self) -> None:
        self._pos.clear()

    @property
    def neg(self) -> Tensor | None:
        """The reduced depressing part; assigning adds a contribution, ``del`` empties it."""
        return self._read(self._neg)

    @neg.setter
    def neg(self, value: Tensor | None) -> None:
        self.accumulate(neg=value)

    @neg.deleter
    def neg(self) -> None:
        self._neg.clear()

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("pos", "neg"):  # not even a Parameter may be registered here
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def accumulate(self, pos: Tensor | None = None, neg: Tensor | None = None) -> None:
        """Adds a contribution to each part that is given.

        Args:
            pos: change upwards, non-negative; broadcastable to the parameter's shape.
            neg: change downwards, non-negative; it will be subtracted.

        Raises:
            TypeError: if a contribution is no tensor.
            ValueError: if a contribution does not fit the parameter's shape.
        """
        pos, neg = self._fit(pos, self._pos, "pos"), self._fit(neg, self._neg, "neg")
        with torch.no_grad():
            for part, value in ((self._pos, pos), (self._neg, neg)):
                if value is not None:
                    part.add(value, self._reduction)

    def accumulate_outer(
        self,
        post: Tensor | Sequence[Tensor],
        pre: Tensor | Sequence[Tensor],
        scale: float | Sequence[float] = 1.0,
        *,
        negative: bool = False,
    ) -> None:
        r"""Adds ``scale`` · :math:`\sum_k \mathrm{post}_k \otimes \mathrm{pre}_k` to one part.

        The product goes straight into the running sum or mean; nothing of the parameter's size is
        made in between. Several products, given as sequences, are one contribution. Where both
        sides are smaller than the parameter and there is no bound, copies of them wait, and go into
        the parameter itself if an updater finds nothing else pending.

        Args:
            post: ``[K, out]``, or a sequence of such.
            pre: ``[K, in]``, or a sequence of such, as long; spikes may be boolean.
            scale: a factor, non-negative by convention, or one for each product.
            negative: adds to the depressing part instead of the potentiating one.

        Raises:
            ValueError: if a product does not have the parameter's shape.

        Example:
            >>> import torch
            >>> acc = Accumulator()
            >>> acc.accumulate_outer(torch.ones(3, 2), torch.ones(3, 1))
            >>> acc.pos
            tensor([[3.],
                    [3.]])
        """
        posts, pres = (list(x) if isinstance(x, (list, tuple)) else [x] for x in (post, pre))
        scales = list(scale) if isinstance(scale, Sequence) else [scale] * len(posts)
        if not all(type(each) is float for each in scales):
            check_numbers(**{f"scale[{i}]": each for i, each in enumerate(scales)})
        for name, sides in (("post", posts), ("pre", pres)):
            for side in sides:
                if not isinstance(side, Tensor):
                    check_tensors(**{name: side})
        if not len(posts) == len(pres) == len(scales):
            raise ValueError(
                "Arguments `post`, `pre` and `scale` should be as many as each other. Found"
                f" {len(posts)}, {len(pres)} and {len(scales)}."
            )
        part, which = (self._neg, "neg") if negative else (self._pos, "pos")
        shape = self.shape
        for left, right in zip(posts, pres, strict=True):
            if left.ndim != 2 or right.ndim != 2 or left.shape[0] != right.shape[0]:
                raise ValueError(
                    "Arguments `post` and `pre` should be matrices `[K, out]` and `[K, in]`."
                    f" Found shapes {tuple(left.shape)} and {tuple(right.shape)}."
                )
            product = torch.Size((left.shape[1], right.shape[1]))
            if shape is None:
                self._check_shape(product, part, which)
            elif product != shape:
                raise ValueError(
                    f"A product added to `{self.name}.{which}` should have the shape"
                    f" {tuple(shape)}. Found shape {tuple(product)}."
                )
            shape = product
        if posts:
            with torch.no_grad():
                products = list(zip(posts, pres, scales, strict=True))
                part.add_products(products, self._reduction, wait=not self.bounded)

    def sibling(self) -> Accumulator:
        """Another for the same parameter, with nothing pending; bounds are the same ones."""
        other = Accumulator(self.shape, name=self.name)
        other._reduction, other._bounds = self._reduction, self._bounds
        return other

    def clear(self, **kwargs: Any) -> None:
        """Drops what is pending; reduction and bounds stay."""
        self._pos.clear()
        self._neg.clear()

    def emptying(self) -> list[partial[None]]:
        """What empties both parts, for :func:`at_once`; :meth:`clear` then frees their memory."""
        return [self._pos.emptying(), self._neg.emptying()]

    @property
    def empty(self) -> bool:
        """Whether nothing is pending."""
        return self._pos.count == 0 and self._neg.count == 0

    @property
    def contributions(self) -> int:
        """How many contributions are pending, to the part that has more."""
        return max(self._pos.count, self._neg.count)

    @property
    def deferred(self) -> list[Product]:
        """The change as products with signed factors; empty where it is not these alone."""
        if self.bounded or any(part.count and not part.deferred for part in (self._pos, self._neg)):
            return []
        return [
            *self._pos.deferred,
            *((left, right, -scale) for left, right, scale in self._neg.deferred),
        ]

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
        new = reduction(fn)
        if not self.empty and new != self._reduction:
            raise RuntimeError(
                f"The reduction of `{self.name}` cannot change while contributions are pending:"
                " apply them with the updater, or drop them with `clear()`, first."
            )
        self._reduction = new

    def upperbound(
        self, bound: HalfBounding | None, max: float | None = None, /, **kw: Any
    ) -> None:
        """Sets the bound on the potentiating part; replaces a full bound.

        Args:
            bound: ``bound(param, update, limit, **kw)``, or ``None`` for none.
            max: the upper limit.
            **kw: passed to the bound.

        Raises:
            ValueError: if there is a bound and no limit.
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
            ValueError: if there is a bound and no limit.
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
            >>> from lightning_accum.functional import bound_power
            >>> acc = Accumulator()
            >>> acc.fullbound(bound_power, 1.0, 0.0, power=2.0)
            >>> acc.pos = torch.ones(1)
            >>> acc.update(torch.full((1,), 0.5))
            tensor([0.2500])
        """
        self._set_bound("full", bound, {"max": max, "min": min}, kw)

    @property
    def sums(self) -> bool:
        """Whether contributions are summed, so that one may come in pieces."""
        return self._reduction.adds and not self._reduction.averages

    @property
    def bounded(self) -> bool:
        """Whether any bound is set."""
        return bool(self._bounds)

    @property
    def limits(self) -> tuple[float | None, float | None]:
        """The lower and the upper limit that are set, ``None`` where there is none."""
        upper, lower = self._bounds["full"][1] if "full" in self._bounds else (None, None)
        if "upper" in self._bounds:
            upper = self._bounds["upper"][1][0]
        if "lower" in self._bounds:
            lower = self._bounds["lower"][1][0]
        return lower, upper

    # ------------------------------------------------------------------ the change
    def update(self, param: Tensor, **kwargs: Any) -> Tensor | None:
        """The bounded change of ``param``, a new tensor; applies nothing and clears nothing.

        Args:
            param: the parameter's current value.
            **kwargs: ignored, for the interface's sake.

        Returns:
            The change in the accumulation's dtype, or ``None`` when nothing is pending.

        Raises:
            ValueError: if what is pending does not fit ``param``.
        """
        check_tensors(param=param)
        with torch.no_grad():
            return self.delta(param.detach(), self.parts(param))

    def forward(self, param: Tensor, **kwargs: Any) -> Tensor:
        """The parameter with its change applied, as a new tensor.

        Args:
            param: the parameter's current value.
            **kwargs: ignored, for the interface's sake.
        """
        delta = self.update(param)
        with torch.no_grad():
            base = param.detach()
            return base.clone() if delta is None else (base + delta).to(base.dtype)

    def parts(self, param: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The reduced parts in ``param``'s shape, on its device; they may share memory with this.

        Raises:
            ValueError: if what is pending does not fit ``param``.
        """
        return self._part_for(param, self._pos), self._part_for(param, self._neg)

    def delta(self, param: Tensor, parts: tuple[Tensor | None, Tensor | None]) -> Tensor | None:
        """The bounded change that ``parts`` make to ``param``; ``None`` when both are missing."""
        pos, neg = unsigned(*parts) if self.bounded else parts
        if pos is None and neg is None:
            return None
        if "full" in self._bounds:
            zeros = torch.zeros_like(pos if neg is None else neg)  # type: ignore[arg-type]
            fn, limits, kw = self._bounds["full"]
            up, down = zeros if pos is None else pos, zeros if neg is None else neg
            return own_result(fn(param, up, down, *limits, **kw), fn, param, (param, up, down))
        pos, neg = self._half(param, pos, "upper"), self._half(param, neg, "lower")
        if pos is None:
            return None if neg is None else -neg
        return pos.clone() if neg is None else pos - neg

    # ------------------------------------------------------------------ inside
    def _half(self, param: Tensor, part: Tensor | None, side: str) -> Tensor | None:
        if part is None or side not in self._bounds:
            return part
        fn, limits, kw = self._bounds[side]
        return own_result(fn(param, part, *limits, **kw), fn, param)

    def _part_for(self, param: Tensor, part: Part) -> Tensor | None:
        value = part.value(self._reduction)
        if value is None:
            return None
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

    def _read(self, part: Part) -> Tensor | None:
        value = part.value(self._reduction)
        return None if value is None else value.clone()

    def _fit(self, value: Tensor | None, part: Part, which: str) -> Tensor | None:
        if value is None:
            return None
        if not isinstance(value, Tensor):
            raise TypeError(
                f"A contribution to `{self.name}.{which}` should be a tensor or None."
                f" Found `{type(value).__name__}`: wrap it with `torch.as_tensor`."
            )
        if value.is_complex():
            raise TypeError(
                f"A contribution to `{self.name}.{which}` should be real. Found `{value.dtype}`:"
                " take its real part, or its magnitude."
            )
        if value.layout is not torch.strided:
            raise TypeError(
                f"A contribution to `{self.name}.{which}` should be dense. Found `{value.layout}`:"
                " pass its `to_dense()`."
            )
        self._check_shape(value.shape, part, which)
        return value if self.shape is None else value.expand(self.shape)

    def _check_shape(self, shape: torch.Size, part: Part, which: str) -> None:
        whose, expected = "the parameter's", self.shape
        if expected is None:
            whose, expected = "the pending contributions'", part.shape
        if expected is None or shape == expected:
            return
        try:
            joined = torch.broadcast_shapes(shape, expected)
        except RuntimeError:
            joined = None
        if joined is None or (self.shape is not None and joined != expected):
            raise ValueError(
                f"A contribution to `{self.name}.{which}` should have, or broadcast to, {whose}"
                f" shape {tuple(expected)}. Found shape {tuple(shape)}."
            )

    def _set_bound(
        self,
        side: str,
        bound: Callable[..., Tensor] | None,
        limits: dict[str, float | None],
        kw: dict[str, Any],
    ) -> None:
        checked = None if bound is None else checked_bound(side, bound, limits, kw)
        self._put_bound(side, checked)

    def _put_bound(self, side: str, bound: Bound | None) -> None:
        for other in (side, *(("upper", "lower") if side == "full" else ("full",))):
            self._bounds.pop(other, None)
        if bound is not None:
            self._bounds[side] = bound

    # ------------------------------------------------------------------ survival
    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Accumulator:
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        device = fn(torch.empty(0, device=self._pos.device or self._neg.device)).device
        self._pos.move(device)
        self._neg.move(device)
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """What is pending, and the package's own bounds by name."""
        return {
            "pos": self._pos.state(),
            "neg": self._neg.state(),
            "reduction": self._reduction.name,
            "bounds": {
                side: {"name": fn.__name__, "limits": list(limits), "kwargs": dict(kw)}
                for side, (fn, limits, kw) in self._bounds.items()
                if is_ours(fn)
            },
        }

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` gives."""
        place = f"`{self.name}`"
        kinds = {"pos": MAPPING, "neg": MAPPING, "reduction": TEXT, "bounds": named(MAPPING)}
        check_state(place, state, kinds)
        counts = [state[which].get("count") for which in ("pos", "neg")]
        if (
            any(COUNT.fits(n) and n > 0 for n in counts)
            and state["reduction"] != self._reduction.name
        ):
            raise RuntimeError(
                f"The state of `{self.name}`, which has contributions pending, should reduce them"
                f" as this accumulator does, by `{self._reduction.name}`. Found"
                f" `{state['reduction']}`: call `reduction(...)` before loading."
            )
        for which in ("pos", "neg"):
            saved = state[which]
            check_part(f"{place}, part `{which}`,", saved, self._reduction)
            found = [value.shape for value in [saved["total"], *saved["kept"]] if value is not None]
            found += [shape_of([product]) for product in saved["deferred"]]
            for shape in found:
                if self.shape is not None and shape != self.shape:
                    raise RuntimeError(
                        f"The state of `{self.name}` should have the parameter's shape"
                        f" {tuple(self.shape)}. Found {tuple(shape)}: it is that of another"
                        " network."
                    )
        bounds_in(place, state["bounds"])

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Takes what :meth:`get_extra_state` gave.

        Raises:
            RuntimeError: if it does not fit, or contributions are pending there under another
                reduction than here; then nothing has changed.
        """
        self.check_extra_state(state)
        found = bounds_in(self.name, state["bounds"])
        self._pos.load(state["pos"])
        self._neg.load(state["neg"])
        for side, bound in found.items():
            self._put_bound(side, bound)

    def extra_repr(self) -> str:
        """Name, shape, reduction and bounds."""
        shape = "?" if self.shape is None else tuple(self.shape)
        return (
            f"{self.name}, {shape}, reduction={self._reduction.name}, bounds={list(self._bounds)}"
        )
