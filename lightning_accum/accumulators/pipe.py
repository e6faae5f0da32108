"""Pipes of stages, from the result of a step to a logger: their sources, splits and ends."""

from __future__ import annotations

import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from numbers import Number
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.metric import CompositionalMetric
from torchmetrics.utilities import rank_zero_warn
from typing_extensions import Self

from lightning_accum._checks import quoted
from lightning_accum.accumulators.base import Joinable, StreamAccumulator, synchronize
from lightning_accum.accumulators.pipe_stage import Ending, Function, Log, Select, Stage

_MANY = 8  # items that wait for an end, before a warning


class Pipe(nn.Module):
    """Stages that items pass through, one after the other; ``**`` puts them together.

    A stage is any callable or torchmetrics metric, and takes the result of the stage before it.
    The first accumulator stops an item and adds it up. When the iteration ends, it passes its
    result on to the stages after it and is reset, and so are the metrics before it. An accumulator
    further on counts iterations: it passes on its result so far, and is not reset.

    Args:
        *stages: the stages, pipes among them.

    Raises:
        TypeError: if a stage cannot be called, or cannot take what is selected before it.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Max, Mean, Select
        >>> from torchmetrics.classification import BinaryAccuracy
        >>> best = Select(pred=0, target=1) ** BinaryAccuracy() ** Mean() ** Max()
        >>> for target in ([0, 1], [0, 0], [1, 1]):
        ...     best((torch.tensor([1.0, 0.0]), torch.tensor(target)))
        ...     best.end()
        tensor(0.)
        tensor(0.5000)
        tensor(0.5000)
    """

    def __init__(self, *stages: Any) -> None:
        super().__init__()
        found = [*chain.from_iterable(map(_flatten, stages))]
        self.stages: Any = nn.ModuleList(found)
        for before, stage in pairwise(found):
            if isinstance(before, Select) and len(before.items) > 1:
                stage.check_selected(before.items)
        # Whether nobody takes the results, as in a branch of a split; and whether ** adds a branch.
        self._is_branch = self._forks = False
        # A tuple hides the LightningModule, which may be a parent, from the submodules.
        self._owner: tuple[Any, ...] = ()
        self._begun = False
        self._unended: Any = None  # warns when this pipe goes, unless it was ended before
        self._settled = False  # whether the items are results of all processes already
        _settle(self._behind_accumulator())

    def forward(self, item: Any) -> Any:
        """Sends the result of a step through, as far as the first accumulator.

        Returns:
            The result of the last stage; ``None`` if an accumulator stopped the item.
        """
        self.begin()
        for stage in self.stages:
            item = stage.take(item)
            if stage.accumulates:
                return None
        return item

    def send(self, item: Any) -> Any:
        """Sends an accumulated result through all stages, and returns that of the last."""
        self.begin()
        return _send_on(self.stages, item)

    def end(self) -> Any:
        """Ends the iteration, and sends the accumulated results to the stages behind them.

        All accumulators are synchronised in one all-reduce, so all processes have to call this.
        Everything is reset before any result is sent on. A stage that fails in one pipe does not
        stop the others; the first failure is raised in the end.

        Returns:
            The result of a pipe's last stage; ``None`` if the pipe has no accumulator.
        """
        if self._unended is not None:
            self._unended.detach()
        ending, computed, failures = [*self.ending()], [], []
        try:
            synchronize([accumulator for accumulator, _ in ending])
            for accumulator, behind in ending:
                try:
                    computed.append((accumulator.compute(), behind))
                except Exception as error:  # noqa: PERF203 -- the other pipes go on
                    failures.append(error)
        finally:
            self.forget()
        result = None
        for value, behind in computed:
            try:
                result = _send_on(behind, value)
            except Exception as error:  # noqa: PERF203 -- the other pipes go on
                failures.append(error)
        if failures:
            raise failures[0]
        return result if any(stage.accumulates for stage in self.stages) else None

    def run(self, items: Iterable[Any]) -> Any:
        """Sends the results of all steps through, and ends the iteration.

        An iteration that an exception or Ctrl-C interrupts counts for nothing.

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
        """Has all ``Log`` stages, later ones too, log through a module, or what has its ``log``."""
        for each in self.modules():
            if isinstance(each, Pipe):
                each._owner = (module,)
            elif isinstance(each, Log):
                each.bind(module)
        return self

    def _bind_as(self, other: Pipe) -> Self:
        """Has all ``Log`` stages log through the module of another pipe, if it has one."""
        return self.bind(*other._owner) if other._owner else self

    def begin(self) -> None:
        """Warns, before the first item, of results that would be lost."""
        if self._begun:
            return
        self._begun = True
        self.check()
        if not self._is_branch:
            found = [each for each in self.modules() if isinstance(each, StreamAccumulator)]
            # It runs at the end of the program at the latest; a copy of the pipe has none.
            self._unended = weakref.finalize(self, _warn_if_lost, found)

    def check(self) -> None:
        """Warns of results that would be lost."""
        for stage in self.stages:
            stage.check()
        if self._is_branch and len(self.stages) and self.stages[-1].only_computes:
            rank_zero_warn(
                f"A pipe of a source or a split should end in a stage that takes its values."
                f" Found `{self.stages[-1]}`, so that nothing is logged: put a `Log`, a `Scalar`"
                " or a function behind it."
            )

    def ending(self) -> Iterable[Ending]:
        """Yields the accumulators whose iteration ends, its own last, with the stages behind."""
        for i, stage in enumerate(self.stages):
            if stage.accumulates:
                yield stage.function, self.stages[i + 1 :]
                return
            yield from stage.ending()

    def forget(self) -> None:
        """Resets everything accumulated since the iteration began."""
        for stage in self.stages:
            stage.forget()
            if stage.accumulates:
                return

    def __pow__(self, other: Any) -> Pipe:
        """Returns a pipe that ends with another stage, attached to a source if this one is."""
        if not self._forks:
            return Pipe(self, other)._bind_as(self)
        branch, last = Pipe(other), self.stages[-1] if len(self.stages) else None
        if not isinstance(last, Split):
            last = Split()
            self.stages.append(last)
        last.branches.append(branch)
        if self._settled or last in self._behind_accumulator():
            _settle([branch])
        branch._is_branch = branch._forks = True
        return branch._bind_as(self)

    def __rpow__(self, other: Any) -> Pipe:
        """Returns a pipe that begins with another stage."""
        return Pipe(other, self)._bind_as(self)

    def _behind_accumulator(self) -> list[nn.Module]:
        """Returns the stages that get results of all processes."""
        kinds = [stage.accumulates for stage in self.stages]
        return list(self.stages[kinds.index(True) + 1 :]) if True in kinds else []


class Split(Stage):
    """Gives each item to several pipes, and passes it on.

    Args:
        *pipes: stages or pipes.

    Example:
        >>> from lightning_accum.accumulators import List, Max, Mean, Split
        >>> both = Split(Mean() ** print, Max() ** print) ** List() ** print
        >>> _ = both.run([1, 3])
        tensor(2., dtype=torch.float64)
        tensor(3)
        [1, 3]
    """

    def __init__(self, *pipes: Any) -> None:
        super().__init__()
        self.branches: Any = nn.ModuleList()
        for pipe in map(Pipe, pipes):
            pipe._is_branch = True
            self.branches.append(pipe)

    def send(self, item: Any) -> Any:
        """Sends an accumulated result, selected items too, through all pipes, and returns it."""
        for pipe in self.branches:
            pipe.send(item)
        return item

    forward = send

    def take(self, item: Any) -> Any:
        """Sends an item through all pipes, as far as their first accumulators, and returns it."""
        for pipe in self.branches:
            pipe(item)
        return item

    def ending(self) -> Iterable[Ending]:
        """Yields the accumulators of the pipes whose iteration ends, with the stages behind."""
        for pipe in self.branches:
            yield from pipe.ending()

    def check_selected(self, names: Iterable[str]) -> None:
        """Raises a ``TypeError`` if a pipe cannot take items of these names."""
        for pipe in self.branches:
            for stage in pipe.stages[:1]:
                stage.check_selected(names)

    def forget(self) -> None:
        """Resets everything that the pipes have accumulated since the iteration began."""
        for pipe in self.branches:
            pipe.forget()

    def check(self) -> None:
        """Warns of results of the pipes that would be lost, or mixed with one another."""
        modules = chain.from_iterable(pipe.modules() for pipe in self.branches)
        times = Counter(each for each in modules if isinstance(each, StreamAccumulator))
        for each in (each for each, number in times.items() if number > 1):
            rank_zero_warn(
                f"An accumulator should stand in one pipe. Found the same `{type(each).__name__}`"
                " in two pipes of a source or a split, so that it adds up the values of both: make"
                " one for each."
            )
        for pipe in self.branches:
            pipe.begin()


class Source(Pipe):
    """The entrance of several pipes: each pipe that ``**`` puts behind it is attached to it.

    Calling it sends an item down all pipes, and ``end()`` ends the iteration in all of them, with
    their accumulators synchronised in one all-reduce. As an attribute of a LightningModule it moves
    to the device and is saved with the model.

    Args:
        module: the LightningModule through which ``Log`` stages log; optional.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Max, Mean, Select, Source
        >>> source = Source()
        >>> loss = source ** Select(loss=0)
        >>> mean = loss ** Mean() ** print
        >>> largest = loss ** Max() ** print
        >>> source.run([(torch.tensor(1.0), "a"), (torch.tensor(3.0), "b")])
        tensor(2.)
        tensor(3.)
    """

    def __init__(self, module: Any = None) -> None:
        super().__init__(Split())
        self._forks = True
        self._seen: tuple[Any, Any] | None = None  # epoch and mode of the last item
        self._told = False
        if module is not None:
            self.bind(module)

    def forward(self, item: Any) -> None:
        """Sends the result of a step down all pipes."""
        self.begin()
        self._check_epoch()
        self.stages[0].take(item)

    def check(self) -> None:
        """Warns if no pipe is attached, and of results that the pipes would lose."""
        super().check()
        if not self.stages[0].branches:
            rank_zero_warn(
                "A source should have a pipe. Found none, so that its items are lost: put one"
                " behind it, as in `source ** Mean() ** Log('loss')`."
            )

    def forget(self) -> None:
        """Has all pipes forget the iteration."""
        self._seen = None
        super().forget()

    def _check_epoch(self) -> None:
        """Warns, once, if items of two epochs, or of training and validation, come together."""
        for module in self._owner:
            now = getattr(module, "current_epoch", None), bool(getattr(module, "training", True))
            before, self._seen = self._seen, now
            if before not in (None, now) and not self._told:
                self._told = True
                modes = ("validation", "training")
                one, other = (f"{modes[mode]} in epoch {epoch}" for epoch, mode in (before, now))
                rank_zero_warn(
                    "A source should have items of one epoch, of training or of validation, until"
                    f" it is ended. Found items of {one}, and of {other}, which are accumulated"
                    " together: call `end()` in `on_train_epoch_end` and in the corresponding hook"
                    " of another stage, or make a source for each stage."
                )


def _flatten(stage: Any) -> Iterator[Any]:
    """Gives the stages of which a stage of a new pipe consists."""
    if isinstance(stage, CompositionalMetric) and stage.op is torch.pow:
        # torchmetrics takes `Accuracy() ** stage` as a power: in a pipe it joins stages.
        parts = (stage.metric_a, stage.metric_b)
        if not any(part is None or isinstance(part, Number | Tensor) for part in parts):
            for part in parts:
                yield from _flatten(part)
            return
    if isinstance(stage, Pipe) and not isinstance(stage, Source):
        yield from stage.stages
    elif callable(stage) and not isinstance(stage, Pipe):
        yield stage if isinstance(stage, Stage) else Function(stage)
    else:
        raise TypeError(
            f"A stage should be a callable or a metric. Found `{stage!r}`: send items through a"
            " pipe with `pipe.run(items)`; a `Source` stands first."
        )


def _send_on(stages: Iterable[Any], item: Any) -> Any:
    """Sends a result through stages, and returns that of the last."""
    for stage in stages:
        item = stage.send(item)
    return item


def _settle(stages: Iterable[nn.Module]) -> None:
    """Makes accumulators local, since they get results of all processes."""
    for module in chain.from_iterable(stage.modules() for stage in stages):
        if isinstance(module, StreamAccumulator):
            module.sync_on_compute = False
        elif isinstance(module, Pipe):
            module._settled = True


def _warn_if_lost(accumulators: list[Any]) -> None:
    """Warns if accumulators hold many items, and nobody has looked at their results."""
    waiting = [a for a in accumulators if a._computed is None and a.update_count >= _MANY]
    if waiting and getattr(sys, "last_value", None) is None:  # an exception says more
        names = quoted(sorted({type(each).__name__ for each in waiting}), ", ")
        warnings.warn(
            f"A pipe or a source should be ended for its results to go on. Found"
            f" {max(each.update_count for each in waiting)} items in {names}, and no end: call"
            " `end()` after the items, or send them by `run(items)`.",
            UserWarning,
            stacklevel=2,
        )


Joinable.joined_by = Pipe
