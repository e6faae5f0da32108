"""Accumulators that keep the values, the last of them, or pass on some."""

import operator
from collections.abc import Callable
from typing import Any

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor
from torchmetrics import Metric

from lightning_accum._checks import check_type, check_value
from lightning_accum._compat.lightning import is_synchronised, known_keywords, local_result
from lightning_accum._state_module import ANYTHING, COUNT, Kind, check_that, list_of
from lightning_accum.accumulators import sums
from lightning_accum.accumulators.base import State, StreamAccumulator, copied


class Keeping(StreamAccumulator):
    """An accumulator of the values themselves, in order."""

    values: list[Any]

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_state("values", [])

    def _copy_state_dict(self) -> State:
        # The list is changed in place.
        return {**super()._copy_state_dict(), "values": list(self.values)}

    def _joined(self, first: State, second: State) -> State:
        return {"values": first["values"] + second["values"]}

    def _kinds(self) -> dict[str, Kind]:
        return {**super()._kinds(), "values": list_of(ANYTHING)}

    def _check_states(self, place: str, states: State) -> None:
        super()._check_states(place, states)
        values, tensors = states["values"], list[Tensor]()
        apply_to_collection(values, Tensor, tensors.append)
        fits = not any(tensor.is_meta for tensor in tensors)
        check_that(fits, place, "`values` in memory", values)
        fits = bool(values) == bool(states["updates"])
        check_that(fits, place, f"as many `updates` as {len(values)} values", states["updates"])


class List(Keeping):
    """A list of all values, in order; of several processes, in the order of their ranks.

    Memory grows with every value: prefer :class:`Sum` or :class:`Mean` if they suffice. Tensors,
    also in tuples, lists and dictionaries, are copied without their graph; any other object is
    kept unchanged. ``torch.load(weights_only=True)`` cannot read a state dict with objects other
    than tensors and builtins.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`; ``compute_on_cpu=True`` keeps tensors in
            the host's memory.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import List
        >>> values = List()
        >>> values(torch.tensor([1, 2]))
        [tensor([1, 2])]
        >>> values("anything")
        [tensor([1, 2]), 'anything']
    """

    def update(self, value: Any) -> None:
        """Adds any object."""
        self.values.append(apply_to_collection(value, Tensor, self._owned))

    def compute(self) -> list[Any]:
        """Returns a new list of the values, with copies of the tensors."""
        return copied(self.values)  # type: ignore[no-any-return]

    def _owned(self, tensor: Tensor) -> Tensor:
        return tensor.detach().to("cpu" if self.compute_on_cpu else tensor.device, copy=True)


class Window(Keeping):
    r"""The mean of the last values, element by element.

    .. math:: \bar x = \frac{1}{n} \sum_{i = N - n + 1}^{N} x_i

    or the mean of all values while there are fewer. It is computed in float64 if the device has it,
    and returned in the values' dtype. Before any value it is nan, with one warning. Over several
    processes it is the mean of the windows of all.

    Args:
        length: number of values :math:`n`.
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Raises:
        ValueError: if the length is not a positive integer.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Window
        >>> window = Window(2)
        >>> [window(torch.tensor(value)) for value in (1.0, 2.0, 6.0)]
        [tensor(1.), tensor(1.5000), tensor(4.)]
    """

    values: list[Tensor]

    def __init__(self, length: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        fits = isinstance(length, int) and not isinstance(length, bool) and length > 0
        check_value(fits, "length", length, "a positive integer")
        self.length = length

    def update(self, value: Tensor | float) -> None:
        """Adds a tensor of one shape, or a number, and drops the oldest if the window is full."""
        tensor = sums.wide(value, self.device)
        if self.values:
            sums.check_like("Window", tensor, self.values[-1])
        self.values.append(tensor.clone())
        del self.values[: -self.length]

    def compute(self) -> Tensor:
        """Returns the mean, of the values' shape."""
        if not self.values:
            return torch.tensor(torch.nan)
        values = torch.stack(self.values)
        summed = values.to(sums.double(values.dtype, values.device))
        mean: Tensor = sums.by_parts(lambda part: part.mean(0), summed)
        return mean.to(values.dtype)

    def _kinds(self) -> dict[str, Kind]:
        return {**super()._kinds(), "values": list_of(sums.NUMBERS)}

    def _check_states(self, place: str, states: State) -> None:
        super()._check_states(place, states)
        shapes = sorted({tuple(value.shape) for value in states["values"]})
        check_that(len(shapes) <= 1, place, "`values` of one shape", str(shapes))


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
