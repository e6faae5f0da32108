"""What happens to a cell, told to one observer that stands beside the pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from torch import Tensor, nn

End = Literal["fit", "failed", "released", "eval", "deleted"]
"""How it ended: a fit, by return or by an exception; a Fabric loop; a loop by hand, or exit."""


class Events:
    """Observes rules and updaters; this one does nothing."""

    # The pipe calls these methods and reads nothing from them: learning does not depend on them. A
    # copy of one, as in a copy of a rule, observes nothing.

    def __reduce__(self) -> tuple[Any, ...]:
        return _silent, ()

    def evaluated(self, cell: str, pre: Tensor, post: Tensor, inputs: Mapping[str, Any]) -> None:
        """A rule has evaluated a window ``[T, B, ...]`` of a cell, and keeps nothing of it yet."""
        # `pre` and `post` are the activity; `inputs` what changes are multiplied by, or functions
        # that return it.

    def found_nothing(self, cell: str) -> None:
        """A rule was called, and nothing of a cell was recorded."""

    def dropped(self, cell: str, steps: int) -> None:
        """Recorded steps of a cell were cleared before the rule was called."""
        # They are 0 if the rule was called and rejected its inputs, or if the cell was deleted.

    def applying(self, updater: nn.Module, names: Sequence[str]) -> None:
        """Changes of parameters are about to be applied."""

    def applied(self, updater: nn.Module, names: Sequence[str], scale: Mapping[str, float]) -> None:
        """Changes of parameters were applied, and constraints have run."""

    def rearranged(self, updater: nn.Module, names: Sequence[str]) -> None:
        """Elements of parameters have got other places, or were replaced."""

    def exported(self, updater: nn.Module, names: Sequence[str]) -> None:
        """Changes of parameters have become gradients."""

    def epoch_ended(self) -> None:
        """An epoch of a fit has ended."""

    def ended(self, how: End) -> None:
        """Nothing more will come."""


SILENT = Events()  # observes nothing


def _silent() -> Events:
    return SILENT
