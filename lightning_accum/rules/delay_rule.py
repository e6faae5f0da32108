"""The base of rules on spike-time differences that delays shift."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from lightning_accum._checks import check_strings
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.engine.window import Window
from lightning_accum.functional.kernels import Kernel
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.rules._spike_pairs import SpikePairs, Synapses
from lightning_accum.rules.base import Rule


class DelayRule(Rule):
    """Base of rules on spike-time differences that delays shift.

    Args:
        hyperparameters: the rule's own hyperparameters, by name.
        delay: name of the connection's delays, ``[out, in]`` in ms.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: options of :class:`~lightning_accum.rules.base.Rule`.
    """

    def __init__(
        self,
        hyperparameters: dict[str, Any],
        delay: str = "delay",
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        every = {**hyperparameters, "delay": delay}
        super().__init__(every, dt=dt, batch_reduction=batch_reduction, **options)

    def check(self, h: Hyperparameters) -> None:
        """Raises an error if hyperparameters make no sense."""
        super().check(h)
        check_strings(delay=h.delay)

    def check_cell(self, name: str, cell: Cell, h: Hyperparameters) -> None:
        """Raises a ``ValueError`` if the connection has no delays of the parameter's shape."""
        super().check_cell(name, cell, h)
        delay = getattr(cell.connection, h.delay, None)
        for param in h.params:
            weight = getattr(cell.connection, param, None)
            if isinstance(weight, Tensor) and (
                not isinstance(delay, Tensor) or delay.shape != weight.shape
            ):
                found = list(delay.shape) if isinstance(delay, Tensor) else type(delay).__name__
                raise ValueError(
                    f"Argument `delay` should name delays of the shape of parameter `{param}` of"
                    f" cell `{name}`, {list(weight.shape)}. Found `delay = {h.delay!r}`, {found}:"
                    f" give the {type(cell.connection).__name__} such a parameter or buffer, in ms."
                )

    def reads(self, h: Hyperparameters) -> tuple[str, ...]:
        """Returns the name of the delays."""
        return (h.delay,)

    def kernel(self, h: Hyperparameters) -> Kernel:
        """Returns the function that gives the change for time differences."""
        kernel: Kernel = h.kernel
        return kernel

    def _vjp_kind(self, module: nn.Module, name: str) -> type[WeightVJP]:
        """Returns the outer product: weights and delays have an entry for each synapse."""
        return Synapses

    def terms(self, window: Window, h: Hyperparameters) -> Sequence[SpikePairs]:
        """Returns the kernel of every nearest pair."""
        delay = window.tensors[h.delay]
        return (SpikePairs(self.kernel(h), window.post, window.pre, delay),)
