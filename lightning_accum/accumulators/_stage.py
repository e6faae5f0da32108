"""What makes an object a stage of a pipe: ``**``."""

from __future__ import annotations

from typing import Any


def chain(*stages: Any) -> Any:
    """A pipe of stages."""
    # Later than everything else: a pipe needs the accumulators, and these are built into pipes.
    from lightning_accum.accumulators.pipe import Pipe

    return Pipe(*stages)


class Stage:
    """A stage of a pipe, on either side of ``**``."""

    def __pow__(self, other: Any) -> Any:
        """Builds a pipe that goes on with another stage."""
        return chain(self, other)

    def __rpow__(self, other: Any) -> Any:
        """Builds a pipe that begins with another stage."""
        return chain(other, self)
