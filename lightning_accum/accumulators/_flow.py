"""What pipes and their source have in common: how an iteration begins and ends."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn
from torchmetrics import Metric
from torchmetrics.utilities import rank_zero_warn
from typing_extensions import Self

from lightning_accum.accumulators.sinks import Log
from lightning_accum.accumulators.sync import synchronize

#: What is left to do at the end of an iteration.
Ends = Iterator[Callable[[], Any]]


class Flow(nn.Module):
    """Somewhere that items are sent through, until the iteration ends."""

    def __init__(self) -> None:
        super().__init__()
        # In a tuple, for a module that held its parent as a submodule would have no end.
        self._owner: tuple[Any, ...] = ()
        self._used = False

    def end(self) -> Any:
        """Ends the iteration: what was accumulated goes on to the stages after it.

        All accumulators are synchronised in one all-reduce, so all processes have to call this.
        Everything is reset before any result goes on, and each goes its way, whether or not a
        stage fails in another pipe; the first failure is raised in the end.

        Returns:
            What the last stage of a pipe returned; nothing where no accumulator is among them.
        """
        synchronize(self)
        result, failure = None, None
        for send_on in list(self._ends()):
            try:
                result = send_on()
            except Exception as error:  # noqa: PERF203 -- the others go on
                failure = failure or error
        if failure is not None:
            raise failure
        return result

    def run(self, items: Iterable[Any]) -> Any:
        """Sends all items through, and ends the iteration.

        An iteration that is cut off, by an exception or Ctrl-C, counts for nothing.

        Args:
            items: what the steps return.

        Returns:
            What ``end`` returns.
        """
        try:
            for item in items:
                self(item)
        except BaseException:
            self._forget()
            raise
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

    def _begin(self) -> None:
        """Says, when it is first used, what will be logged nowhere."""
        if self._used:
            return
        for module in self.modules():
            if isinstance(module, Log) and not module.is_heard():
                rank_zero_warn(
                    f"`{module}` should be bound to a LightningModule. Found none, so that nothing"
                    " is logged: give the module to the source, `Source(self)`, or to the pipe,"
                    " `pipe.bind(self)`, or let Python's logger `lightning_accum` show level INFO."
                )
            elif isinstance(module, Flow) and not module._used:
                module._used = True
                module._check_end()

    @abstractmethod
    def _check_end(self) -> None:
        """Warns where nothing would come of what enters."""

    @abstractmethod
    def _ends(self) -> Ends:
        """Computes and resets what was accumulated, and yields what is left to do.

        The last of these returns what ``end`` does.
        """

    @abstractmethod
    def _forget(self) -> None:
        """Resets what was accumulated since the iteration began."""
