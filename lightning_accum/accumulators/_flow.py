"""The base of pipes and sources: how an iteration begins and ends."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

from torch import nn
from torchmetrics import Metric
from typing_extensions import Self

from lightning_accum._checks import quoted
from lightning_accum._ending import delete_at_exit, has_ended
from lightning_accum.accumulators._links import Ends
from lightning_accum.accumulators._stage import Stage
from lightning_accum.accumulators.sync import synchronize

_MANY = 8  # items that wait for an end, before a warning


class Flow(nn.Module):
    """An entrance for items, which accumulate until the iteration ends."""

    def __init__(self) -> None:
        super().__init__()
        # A tuple hides the LightningModule, which may be a parent, from the submodules.
        self._owner: tuple[Any, ...] = ()
        self._begun = self._was_ended = False
        delete_at_exit(self)

    @property
    def is_free(self) -> bool:
        """Whether nothing else ends the iterations of this object."""
        return True

    def end(self) -> Any:
        """Ends the iteration, and sends the accumulated results to the stages behind them.

        All accumulators are synchronised in one all-reduce, so all processes have to call this.
        Everything is reset before any result is sent on. A stage that fails in one pipe does not
        stop the others; the first failure is raised in the end.

        Returns:
            The result of a pipe's last stage; ``None`` if the pipe has no accumulator.
        """
        self._was_ended = True
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

    def warn_if_lost(self) -> None:
        """Warns, once, if many items were accumulated and no iteration was ever ended."""
        if not self._begun or self._was_ended or not self.is_free:
            return
        self._was_ended = True
        metrics = (each for each in self.modules() if isinstance(each, Metric))
        waiting = [each for each in metrics if _waits(each)]
        if waiting:
            names = quoted(sorted({type(e).__name__ for e in waiting}), ", ")
            warnings.warn(
                f"A pipe or a source should be ended for its results to go on. Found"
                f" {max(each._update_count for each in waiting)} items in {names}, and no end: call"
                " `end()` after the items, or send them by `run(items)`.",
                UserWarning,
                stacklevel=2,
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._was_ended = True  # the original says what is to be said

    def __del__(self) -> None:
        if "_was_ended" in vars(self) and not has_ended():
            self.warn_if_lost()

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


def _waits(metric: Metric) -> bool:
    """Returns whether an accumulator holds many items, and nobody has looked at their result."""
    if metric._computed is not None or metric._update_count < _MANY:
        return False
    return isinstance(metric, Stage) and metric.link().accumulates
