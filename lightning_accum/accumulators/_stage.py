"""The base of the stages of a pipe, which ``**`` joins."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any, ClassVar

from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection

from lightning_accum.accumulators._links import Link, MetricLink


class Stage:
    """A stage of a pipe, on either side of ``**``.

    A pipe is made of stages and is itself a stage of other pipes, so this file cannot import its
    class: the class registers itself by :meth:`join_with`.
    """

    _pipe: ClassVar[Callable[..., Any]]

    @staticmethod
    def join_with(pipe: Callable[..., Any]) -> None:
        """Has ``**`` join stages by ``pipe(*stages)``."""
        Stage._pipe = pipe

    def link(self) -> Link:
        """Returns the part that this stage takes in a pipe."""
        return Link(self, type(self).forward)  # type: ignore[attr-defined]

    def __pow__(self, other: Any) -> Any:
        """Returns a pipe that ends with another stage; of a metric, its power by a number."""
        power = getattr(super(), "__pow__", None) if isinstance(other, Number | Tensor) else None
        return join(self, other) if power is None else power(other)

    def __rpow__(self, other: Any) -> Any:
        """Returns a pipe that begins with another stage; of a metric, the power of a number."""
        power = getattr(super(), "__rpow__", None) if isinstance(other, Number | Tensor) else None
        return join(other, self) if power is None else power(other)


class Function(Stage, nn.Module):
    """A function as a module, since a pipe holds its stages as submodules."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def link(self) -> Link:
        """Returns a part that takes the arguments of the function."""
        return Link(self, self.function, bound=0)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the result of the function."""
        return self.function(*args, **kwargs)

    def extra_repr(self) -> str:
        """Returns the name of the function."""
        return getattr(self.function, "__qualname__", repr(self.function))


def join(*stages: Any) -> Any:
    """Returns a pipe of stages."""
    return Stage._pipe(*stages)


def link(stage: nn.Module) -> Link:
    """Returns the part that a stage, or any other module, takes in a pipe."""
    if isinstance(stage, Stage):
        return stage.link()
    if isinstance(stage, Metric):
        return MetricLink(stage, type(stage).update)
    if isinstance(stage, MetricCollection):
        return MetricLink(stage, MetricCollection.forward)
    return Link(stage, type(stage).forward)
