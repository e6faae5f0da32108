"""Links: how each kind of stage takes part in the iterations of a pipe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from lightning_accum.accumulators._arguments import arguments, parameters

#: Calls that send the results of an iteration on.
Ends = Iterator[Callable[[], Any]]


class Link:
    """The part of a stage that is a function, and keeps nothing.

    Args:
        stage: the stage, called with its arguments.
        function: the function whose parameters are those of the stage.
        bound: how many parameters are bound, such as ``self``.
        only_computes: whether the stage has no effect, so that its result is lost unless another
            stage takes it.
    """

    #: Whether items stop here until the iteration ends.
    accumulates = False

    def __init__(
        self,
        stage: Any,
        function: Callable[..., Any],
        bound: int = 1,
        only_computes: bool = False,
    ) -> None:
        self.stage = stage
        self.only_computes = only_computes
        self.parameters = parameters(function, bound)

    def arguments(self, item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of the stage for an item."""
        return arguments(self.stage, self.parameters, item)

    def send(self, item: Any) -> Any:
        """Sends an accumulated result through the stage, and returns the stage's result."""
        args, kwargs = self.arguments(item)
        return self.stage(*args, **kwargs)

    def step(self, item: Any) -> Any:
        """Sends an item of a step through the stage, and returns the stage's result."""
        return self.send(item)

    def ends(self) -> Ends:
        """Computes and resets the accumulated results, and yields calls that send them on."""
        return iter(())

    def forget(self) -> None:
        """Resets everything accumulated since the iteration began."""

    def begin(self) -> None:
        """Warns, before the first item, of results that would be lost."""

    def bind(self, module: Any) -> None:
        """Logs through a LightningModule from now on."""

    def settle(self) -> None:
        """Makes accumulators local, since they get results of all processes."""


class MetricLink(Link):
    """The part of a metric, which is reset at the end of every iteration."""

    def __init__(self, stage: Any, function: Callable[..., Any], bound: int = 1) -> None:
        super().__init__(stage, function, bound, only_computes=True)

    def ends(self) -> Ends:
        """Resets the metric, whose results have gone on at every step."""
        self.stage.reset()
        return iter(())

    def forget(self) -> None:
        """Resets the metric."""
        self.stage.reset()


class AccumulatorLink(MetricLink):
    """The part of an accumulator, which adds items up until the iteration ends."""

    accumulates = True

    def step(self, item: Any) -> None:
        """Adds an item."""
        args, kwargs = self.arguments(item)
        self.stage.update(*args, **kwargs)

    def settle(self) -> None:
        """Has the accumulator compute in this process only."""
        self.stage.keep_local()
