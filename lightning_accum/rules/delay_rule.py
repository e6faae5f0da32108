"""The base of rules on spike-time differences that delays shift."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from torch import Tensor, nn
from typing_extensions import Self

from lightning_accum._checks import check_strings
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.fields import field
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.engine.window import Window
from lightning_accum.functional.kernels import Kernel
from lightning_accum.rules._spike_pairs import SpikePairs, Synapses
from lightning_accum.rules.base import Rule


class DelayRule(Rule):
    """Base of rules on spike-time differences that delays shift."""

    _shifts_by_delay = True

    delay: str = field(default="delay", kw_only=True)

    def check(self, h: Self) -> None:
        """Raises an error if hyperparameters make no sense."""
        super().check(h)
        check_strings(delay=h.delay)

    def check_cell(self, name: str, cell: Cell, h: Self) -> None:
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

    def reads(self, h: Self) -> tuple[str, ...]:
        """Returns the name of the delays."""
        return (h.delay,)

    @abstractmethod
    def kernel_of(self, h: Self) -> Kernel:
        """Returns the function that gives the change for time differences."""

    def _vjp_kind(self, module: nn.Module, name: str) -> type[WeightVJP]:
        """Returns the outer product: weights and delays have an entry for each synapse."""
        return Synapses

    def terms(self, window: Window, h: Self) -> Sequence[SpikePairs]:
        """Returns the kernel of every nearest pair."""
        delay = window.tensors[h.delay]
        return (SpikePairs(self.kernel_of(h), window.post, window.pre, delay),)
