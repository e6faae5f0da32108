"""Accumulators that keep the values themselves: a list, and the mean of the last ones."""

from typing import Any

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor

from lightning_accum._checked_state import ANYTHING, Kind, check_that, list_of
from lightning_accum._checks import check_value
from lightning_accum.accumulators.base import State, StreamAccumulator, copied
from lightning_accum.accumulators.elementwise_base import (
    NUMBERS,
    by_parts,
    check_like,
    double,
    wide,
)


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
        device = "cpu" if self.compute_on_cpu else None
        owned = apply_to_collection(value, Tensor, lambda x: x.detach().to(device, copy=True))
        self.values.append(owned)

    def compute(self) -> list[Any]:
        """Returns a new list of the values, with copies of the tensors."""
        return copied(self.values)  # type: ignore[no-any-return]


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
        tensor = wide(value, self.device)
        if self.values:
            check_like("Window", tensor, self.values[-1])
        self.values.append(tensor.clone())
        del self.values[: -self.length]

    def compute(self) -> Tensor:
        """Returns the mean, of the values' shape."""
        if not self.values:
            return torch.tensor(torch.nan)
        values = torch.stack(self.values)
        summed = values.to(double(values.dtype, values.device))
        mean: Tensor = by_parts(lambda part: part.mean(0), summed)
        return mean.to(values.dtype)

    def _kinds(self) -> dict[str, Kind]:
        return {**super()._kinds(), "values": list_of(NUMBERS)}

    def _check_states(self, place: str, states: State) -> None:
        super()._check_states(place, states)
        shapes = sorted({tuple(value.shape) for value in states["values"]})
        check_that(len(shapes) <= 1, place, "`values` of one shape", str(shapes))
