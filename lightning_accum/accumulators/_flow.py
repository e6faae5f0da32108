"""What pipes and their source have in common: how an iteration ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from torch import nn
from torchmetrics import Metric
from typing_extensions import Self

from lightning_accum.accumulators.sinks import Log
from lightning_accum.accumulators.sync import synchronize


class Flow(nn.Module):
    """Somewhere that items are sent through, until the iteration ends."""

    def __init__(self) -> None:
        super().__init__()
        # In a tuple, for a module that held its parent as a submodule would have no end.
        self._owner: tuple[Any, ...] = ()

    def end(self) -> Any:
        """Ends the iteration: what was accumulated goes on to the stages after it.

        All accumulators are synchronised in one all-reduce, so all processes have to call this.

        Returns:
            What the last stage of a pipe returned; nothing where no accumulator is among them.
        """
        synchronize(self)
        return self._end()

    def run(self, items: Iterable[Any]) -> Any:
        """Sends all items through, and ends the iteration.

        Args:
            items: what the steps return.

        Returns:
            What ``end`` returns.
        """
        for item in items:
            self(item)
        return self.end()

    def reset(self) -> None:
        """Forgets whatever its accumulators and metrics have seen."""
        for module in self.modules():
            if isinstance(module, Metric):
                module.reset()

    def bind(self, module: Any) -> Self:
        """Logs through this module from now on, from all ``Log`` stages, also later ones.

        Args:
            module: a LightningModule, or anything with its ``log``.

        Returns:
            Itself.
        """
        self._owner = (module,)
        for stage in self.modules():
            if isinstance(stage, Log):
                stage.bind(module)
        return self

    def _bind_as(self, other: Flow) -> Self:
        for module in other._owner:
            self.bind(module)
        return self

    @abstractmethod
    def _end(self) -> Any:
        """Ends the iteration, once all is synchronised."""
