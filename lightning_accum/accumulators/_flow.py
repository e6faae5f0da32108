"""The base of pipes and sources: how an iteration begins and ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from torch import nn
from torchmetrics import Metric
from typing_extensions import Self

from lightning_accum.accumulators._links import Ends
from lightning_accum.accumulators.sync import synchronize


class Flow(nn.Module):
    """An entrance for items, which accumulate until the iteration ends."""

    def __init__(self) -> None:
        super().__init__()
        # A tuple hides the LightningModule, which may be a parent, from the submodules.
        self._owner: tuple[Any, ...] = ()
        self._begun = False

    def end(self) -> Any:
        """Ends the iteration, and sends the accumulated results to the stages behind them.

        All accumulators are synchronised in one all-reduce, so all processes have to call this.
        Everything is reset before any result is sent on. A stage that fails in one pipe does not
        stop the others; the first failure is raised in the end.

        Returns:
            The result of a pipe's last stage; ``None`` if the pipe has no accumulator.
        """
        synchronize(self)
        result, failure = None, None
        for send_on in list(self.ends()):
            try:
                result = send_on()
            except Exception as error:  # noqa: PERF203 -- the other pipes go on
                failure = failure or error
        if failure is not None:
            raise failure
        return result

    def run(self, items: Iterable[Any]) -> Any:
        """Sends all items through, and ends the iteration.

        An iteration that an exception or Ctrl-C interrupts counts for nothing.

        Args:
            items: the results of the steps.

        Returns:
            The result of :meth:`end`.
        """
        try:
            for item in items:
                self(item)
        except BaseException:
            self.forget()
            raise
        return self.end()

    def reset(self) -> None:
        """Resets all accumulators and metrics, those that count iterations included."""
        for module in self.modules():
            if isinstance(module, Metric):
                module.reset()

    def bind(self, module: Any) -> Self:
        """Has all ``Log`` stages, also later ones, log through a module.

        Args:
            module: a LightningModule, or another object with its ``log``.

        Returns:
            This object.
        """
        self._owner = (module,)
        self.bind_stages(module)
        return self

    def bind_as(self, other: Flow) -> Self:
        """Has all ``Log`` stages log through the module of another flow, if it has one."""
        for module in other._owner:
            self.bind(module)
        return self

    def begin(self) -> None:
        """Warns, before the first item, of results that would be lost."""
        if not self._begun:
            self._begun = True
            self.check()

    @abstractmethod
    def bind_stages(self, module: Any) -> None:
        """Binds the stages to a module."""

    @abstractmethod
    def check(self) -> None:
        """Warns of results that would be lost."""

    @abstractmethod
    def ends(self) -> Ends:
        """Computes and resets the accumulated results, and yields calls that send them on.

        The result of the last call is that of :meth:`end`.
        """

    @abstractmethod
    def forget(self) -> None:
        """Resets everything accumulated since the iteration began."""
