"""What makes an object a stage of a pipe: ``**``."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Number
from typing import Any, ClassVar

from torch import Tensor


class Stage:
    """A stage of a pipe, on either side of ``**``.

    A pipe is itself a stage and is made of stages, so that its class is not known here: it says
    itself, by :meth:`join_with`, that stages are joined by it.
    """

    _pipe: ClassVar[Callable[..., Any]]

    @staticmethod
    def join_with(pipe: Callable[..., Any]) -> None:
        """Has ``**`` make a pipe with ``pipe(*stages)``."""
        Stage._pipe = pipe

    def __pow__(self, other: Any) -> Any:
        """Builds a pipe that goes on with another stage; of a metric, its power by a number."""
        power = getattr(super(), "__pow__", None) if isinstance(other, Number | Tensor) else None
        return chain(self, other) if power is None else power(other)

    def __rpow__(self, other: Any) -> Any:
        """Builds a pipe that begins with another stage; of a metric, the power of a number."""
        power = getattr(super(), "__rpow__", None) if isinstance(other, Number | Tensor) else None
        return chain(other, self) if power is None else power(other)


def chain(*stages: Any) -> Any:
    """Returns a pipe of stages."""
    return Stage._pipe(*stages)
