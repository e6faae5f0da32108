"""What happens to a cell, told to one observer that stands beside the pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor, nn

By = Literal["hand", "callback", "module", "loop"]
"""Who applies updates: a loop by hand, a callback, the module's own optimizer, or Fabric's loop."""

End = Literal["epoch", "fit", "failed", "released", "eval", "deleted"]
"""What ended: an epoch; a fit, by return or an exception; a Fabric loop; one by hand, or exit."""

Values: TypeAlias = "Mapping[str, Tensor | float]"
"""Measurements by name: numbers that the kernel has summed, or tensors without dimensions."""


class Observer:
    """Observes rules, updaters and fits; this one does nothing."""

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

    # ------------------------------------------------------------------ of a fit
    def saw(self, cell: str, window: Tensor, counts: Tensor, slots: int, logs: bool) -> None:
        """The output ``[T, B, ...]`` of a cell's neuron is about to be evaluated."""
        # `counts` has the spikes of each neuron, `slots` steps times samples, of all processes.

    def measured(self, cell: str, name: str, before: Tensor, after: Tensor, values: Values) -> None:
        """An update of a cell's parameter was measured; ``values["updates"]`` is its number."""

    def logged(self) -> None:
        """The latest measurements are logged, in the current batch."""

    def ended(self, how: End) -> None:
        """An epoch of a fit has ended, or nothing more will come."""

    def lines(
        self, updates: Mapping[tuple[str, str], int] | None = None, exports: bool = False
    ) -> list[str]:
        """Returns what sums up a fit that has ended, by the updates of each parameter of a cell."""
        return []


SILENT = Observer()  # observes nothing


def _silent() -> Observer:
    return SILENT
