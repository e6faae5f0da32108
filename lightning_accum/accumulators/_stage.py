"""What makes an object a stage of a pipe: ``**``."""

from __future__ import annotations

from numbers import Number
from typing import Any

from torch import Tensor


def chain(*stages: Any) -> Any:
    """A pipe of stages."""
    # Later than everything else: a pipe needs the accumulators, and these are built into pipes.
    from lightning_accum.accumulators.pipe import Pipe

    return Pipe(*stages)


class Stage:
    """A stage of a pipe, on either side of ``**``."""

    def __pow__(self, other: Any) -> Any:
        """Builds a pipe that goes on with another stage; of a metric, its power by a number."""
        power = getattr(super(), "__pow__", None) if isinstance(other, Number | Tensor) else None
        return chain(self, other) if power is None else power(other)

    def __rpow__(self, other: Any) -> Any:
        """Builds a pipe that begins with another stage; of a metric, the power of a number."""
        power = getattr(super(), "__rpow__", None) if isinstance(other, Number | Tensor) else None
        return chain(other, self) if power is None else power(other)
