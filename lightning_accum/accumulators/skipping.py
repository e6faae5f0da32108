"""An accumulator that leaves out values at some positions of a repeating pattern."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_accum._checked_state import COUNT, Kind
from lightning_accum._checks import check_type, check_value
from lightning_accum._compat.torchmetrics_internals import (
    is_synchronised,
    known_keywords,
    local_result,
)
from lightning_accum.accumulators.base import State, StreamAccumulator


class Except(StreamAccumulator):
    r"""Passes values on to an accumulator, except at some positions of a repeating pattern.

    Values are counted from 0, since the last reset. The :math:`i`-th stands at position
    :math:`p = i \bmod \mathrm{period}`, and is left out if
    :math:`\mathrm{begin} \le p \le \mathrm{end}` for any of the ranges.

    Args:
        accumulator: the accumulator, or any torchmetrics metric, that gets the other values.
        begin: first position that is left out, or an integer tensor with that of several ranges;
            by default 0.
        end: last position that is left out, or a tensor of the same shape; by default ``begin``.
        period: number of positions; by default ``max(end) + 1``.

    Raises:
        TypeError: if the accumulator is not one.
        ValueError: if neither ``begin`` nor ``end`` is given, if they differ in shape, are negative
            or not integers, if a range begins after its end, or if no position is left.

    Example:
        The steps of a GAN train the discriminator twice, then the generator. Each accumulator
        gets the losses of one of them.

        >>> from lightning_accum.accumulators import Except, Mean
        >>> discriminator = Except(Mean(), begin=2)
        >>> generator = Except(Mean(), begin=0, end=1, period=3)
        >>> for loss in (1.0, 3.0, 50.0, 1.0, 3.0, 70.0):
        ...     discriminator.update(loss)
        ...     generator.update(loss)
        >>> discriminator.compute(), generator.compute()
        (tensor(2., dtype=torch.float64), tensor(60., dtype=torch.float64))
    """

    accumulator: Metric
    position: int

    def __init__(
        self,
        accumulator: Any,
        begin: int | Tensor | None = None,
        end: int | Tensor | None = None,
        period: int | None = None,
    ) -> None:
        super().__init__(sync_on_compute=False)  # the accumulator is synchronised
        should = "an accumulator, such as `Mean()`, or a torchmetrics metric"
        check_type(isinstance(accumulator, Metric), "accumulator", accumulator, should)
        self.accumulator = accumulator
        self.ranges = _ranges(begin, end)
        default = 1 + max(last for _, last in self.ranges)
        self.period = default if period is None else _integer("period", period)
        # A position is left if the first one is, or one that follows a range.
        follow = (0, *(last + 1 for _, last in self.ranges))
        if all(self._skips(place) for place in follow if place < self.period):
            raise ValueError(
                "Arguments `begin`, `end` and `period` should leave at least one position. Found"
                f" ranges {self.ranges} in a `period = {self.period}`, which are all: give a longer"
                f" `period`, such as `period={default + 1}`."
            )
        self.add_state("position", 0)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Passes its arguments on to ``update`` of the accumulator, or leaves the value out."""
        if not self._skips(self.position):
            self.accumulator.update(*args, **known_keywords(self.accumulator, kwargs))
        self.position = (self.position + 1) % self.period

    def _skips(self, position: int) -> bool:
        """Returns whether values at a position are left out."""
        return any(begin <= position <= end for begin, end in self.ranges)

    def compute(self) -> Any:
        """Returns the accumulator's result."""
        return self.accumulator.compute()

    def reset(self) -> None:
        """Forgets the values, and begins at position 0."""
        super().reset()
        self.accumulator.reset()

    def _kinds(self) -> dict[str, Kind]:
        should = f"a position below the period of {self.period}"
        position = Kind(should, lambda value: COUNT.fits(value) and value < self.period)
        return {**super()._kinds(), "position": position}

    def sync(self, *args: Any, **kwargs: Any) -> None:
        """Synchronises the accumulator."""
        self.accumulator.sync(*args, **kwargs)
        self._is_synced = is_synchronised(self.accumulator)

    def unsync(self, *args: Any, **kwargs: Any) -> None:
        """Returns the accumulator to the states of this process."""
        self.accumulator.unsync(*args, **kwargs)
        self._is_synced = is_synchronised(self.accumulator)

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        # The accumulator synchronises, caches and warns itself.
        return compute

    @property
    def metric_state(self) -> State:
        """Returns the accumulator's states by name."""
        return self.accumulator.metric_state

    def merge_state(self, incoming_state: State | Metric) -> None:
        """Merges another ``Except``, or a state of the accumulator; the position stays."""
        if isinstance(incoming_state, Except):
            incoming_state = incoming_state.accumulator
        self.accumulator.merge_state(incoming_state)

    def result_so_far(self) -> Any:
        """Returns the accumulator's result of this process, without caching it."""
        own = self.accumulator
        return own.result_so_far() if isinstance(own, StreamAccumulator) else local_result(own)

    @property
    def receiver(self) -> Metric:
        """The metric that receives the values."""
        own = self.accumulator
        return own.receiver if isinstance(own, StreamAccumulator) else own


def _integer(name: str, value: Any) -> int:
    """Returns a position, checked."""
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    fits = number >= 0 and not isinstance(value, bool)
    mend = f"count positions from 0, and convert a tensor of others with `{name}.long()`"
    check_value(fits, name, value, "a non-negative integer or a tensor of them", mend)
    return number


def _ranges(begin: Any, end: Any) -> tuple[tuple[int, int], ...]:
    """Returns the first and the last position of each range."""
    if begin is None and end is None:
        raise ValueError(
            "Arguments `begin` and `end` should not both be missing. Found `begin = None` and"
            " `end = None`: give the first position to leave out, as in `begin=2`, or the last, or"
            " both."
        )
    if begin is None:
        begin = torch.zeros_like(end) if isinstance(end, Tensor) else 0
    given = {"begin": begin, "end": begin if end is None else end}
    shapes = [tuple(x.shape) if isinstance(x, Tensor) else () for x in given.values()]
    firsts, lasts = (
        [_integer(name, n) for n in (x.reshape(-1).tolist() if isinstance(x, Tensor) else [x])]
        for name, x in given.items()
    )
    if shapes[0] != shapes[1] or not firsts:
        raise ValueError(
            "Arguments `begin` and `end` should have the same shape, with at least one element."
            f" Found shapes {shapes[0]} and {shapes[1]}: give both as integers, or as tensors with"
            " an element for each range."
        )
    ranges = tuple(zip(firsts, lasts, strict=True))
    for first, last in ranges:
        if first > last:
            raise ValueError(
                "Argument `begin` should not be larger than `end`. Found a range from"
                f" {first} to {last}: for a range around the end of the period, give its two parts."
            )
    return ranges
