"""Pipes of stages, from the result of a step to a logger: their sources, splits and ends."""

from __future__ import annotations

import atexit
import functools
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from numbers import Number
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.metric import CompositionalMetric
from torchmetrics.utilities import rank_zero_warn
from typing_extensions import Self

from lightning_accum._checks import quoted
from lightning_accum.accumulators.base import synchronize
from lightning_accum.accumulators.custom import VerbAdapter, has_verbs
from lightning_accum.accumulators.pipe_stage import Ends, Function, Stage, as_stage

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
        TypeError: if a stage cannot be called.

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
        self.stages = nn.ModuleList(chain.from_iterable(map(_flatten, stages)))
        self._stages = [as_stage(stage) for stage in self.stages]
        # Whether nobody takes the results, as in a branch of a split; and whether ** adds a branch.
        self._is_branch = self._forks = False
        # A tuple hides the LightningModule, which may be a parent, from the submodules.
        self._owner: tuple[Any, ...] = ()
        self._begun = self._was_ended = False
        # Whether the items are results of all processes already.
        self._settled = False
        for behind in self._behind_accumulator():
            behind.settle()
        _alive.add(self)

    def forward(self, item: Any) -> Any:
        """Sends the result of a step through, as far as the first accumulator.

        Returns:
            The result of the last stage; ``None`` if an accumulator stopped the item.
        """
        self.begin()
        for stage in self._stages:
            item = stage.take(item)
            if stage.accumulates:
                return None
        return item

    def send(self, item: Any) -> Any:
        """Sends an accumulated result through all stages, and returns that of the last."""
        self.begin()
        return _send_on(self._stages, item)

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
        self._owner = (module,)
        for stage in self._stages:
            stage.bind(module)
        return self

    def _bind_as(self, other: Pipe) -> Self:
        """Has all ``Log`` stages log through the module of another pipe, if it has one."""
        for module in other._owner:
            self.bind(module)
        return self

    def settle(self) -> None:
        """Makes all accumulators local, since they get results of all processes."""
        self._settled = True
        for stage in self._stages:
            stage.settle()

    def begin(self) -> None:
        """Warns, before the first item, of results that would be lost."""
        if not self._begun:
            self._begun = True
            self.check()

    def check(self) -> None:
        """Warns of results that would be lost."""
        for stage in self._stages:
            stage.check()
        if self._is_branch and self._stages and self._stages[-1].only_computes:
            rank_zero_warn(
                f"A pipe of a source or a split should end in a stage that takes its values."
                f" Found `{self.stages[-1]}`, so that nothing is logged: put a `Log`, a `Scalar`"
                " or a function behind it."
            )

    def ends(self) -> Ends:
        """Computes and resets the accumulated results, and yields calls that send them on.

        The result of the last call is that of :meth:`end`.
        """
        for i, stage in enumerate(self._stages):
            if stage.accumulates:
                yield self._ended(stage, self._stages[i + 1 :])
                return
            yield from stage.ends()
        yield lambda: None

    def forget(self) -> None:
        """Resets everything accumulated since the iteration began."""
        for stage in self._stages:
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
            self._stages.append(last)
        last.branches.append(branch)
        if self._settled or last in self._behind_accumulator():
            branch.settle()
        branch._is_branch = branch._forks = True
        return branch._bind_as(self)

    def __rpow__(self, other: Any) -> Pipe:
        """Returns a pipe that begins with another stage."""
        return Pipe(other, self)._bind_as(self)

    def warn_if_lost(self) -> None:
        """Warns, once, if many items were accumulated and no iteration was ever ended."""
        if not self._begun or self._was_ended or self._is_branch:
            return
        self._was_ended = True
        waiting: list[Any] = [each for each in self.modules() if _waits(each)]
        if waiting:
            names = quoted(sorted({type(each).__name__ for each in waiting}), ", ")
            warnings.warn(
                f"A pipe or a source should be ended for its results to go on. Found"
                f" {max(each._update_count for each in waiting)} items in {names}, and no end:"
                " call `end()` after the items, or send them by `run(items)`.",
                UserWarning,
                stacklevel=2,
            )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._was_ended = True  # the original says what is to be said

    def __del__(self) -> None:
        failed = sys.is_finalizing() or getattr(sys, "last_value", None) is not None
        if "_was_ended" in vars(self) and not failed:  # an exception says more
            self.warn_if_lost()

    def _behind_accumulator(self) -> list[Stage]:
        """Returns the stages that get results of all processes."""
        kinds = [stage.accumulates for stage in self._stages]
        return self._stages[kinds.index(True) + 1 :] if True in kinds else []

    def _ended(self, accumulator: Any, behind: list[Stage]) -> Callable[[], Any]:
        """Computes and resets an accumulator; returns a call that sends its result on."""
        try:
            result = accumulator.compute()
        except Exception as error:
            return functools.partial(_raise, error)
        finally:
            accumulator.reset()
        return functools.partial(_send_on, behind, result)


_alive: weakref.WeakSet[Pipe] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for pipe in [*_alive]:
        pipe.__del__()


class Split(Stage, nn.Module):
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
        self.branches = nn.ModuleList(map(Pipe, pipes))
        for pipe in self.pipes():
            pipe._is_branch = True

    def pipes(self) -> Iterable[Any]:
        """Returns the pipes."""
        return self.branches

    def forward(self, item: Any) -> Any:
        """Sends an accumulated result through all pipes, and returns it."""
        for pipe in self.pipes():
            pipe.send(item)
        return item

    def send(self, item: Any) -> Any:
        """Sends an accumulated result, selected items too, through all pipes, and returns it."""
        return self(item)

    def take(self, item: Any) -> Any:
        """Sends an item through all pipes, as far as their first accumulators, and returns it."""
        for pipe in self.pipes():
            pipe(item)
        return item

    def ends(self) -> Ends:
        """Yields the calls that send the pipes' results on."""
        for pipe in self.pipes():
            yield from pipe.ends()

    def check(self) -> None:
        """Warns of results of the pipes that would be lost, or mixed with one another."""
        stages = chain.from_iterable(pipe.modules() for pipe in self.pipes())
        times = Counter(each for each in stages if isinstance(each, Stage) and each.accumulates)
        for each in (each for each, number in times.items() if number > 1):
            rank_zero_warn(
                f"An accumulator should stand in one pipe. Found the same `{type(each).__name__}`"
                " in two pipes of a source or a split, so that it adds up the values of both, and"
                " only the first gets the result: make one for each."
            )
        for pipe in self.pipes():
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
        self._epoch: int | None = None
        self._training: bool | None = None
        self._told: set[str] = set()
        if module is not None:
            self.bind(module)

    def forward(self, item: Any) -> None:
        """Sends the result of a step down all pipes."""
        self.begin()
        self._check_epoch()
        self._stages[0].take(item)

    def check(self) -> None:
        """Warns if there is no pipe, and of results that the pipes would lose."""
        super().check()
        (split,) = self.stages
        if not split.branches:
            rank_zero_warn(
                "A source should have a pipe. Found none, so that its items are lost: put one"
                " behind it, as in `source ** Mean() ** Log('loss')`."
            )

    def ends(self) -> Ends:
        """Yields the calls that send the results of all pipes on."""
        self._epoch = self._training = None
        return super().ends()

    def forget(self) -> None:
        """Has all pipes forget the iteration."""
        self._epoch = self._training = None
        super().forget()

    def _check_epoch(self) -> None:
        """Warns if items of two epochs, or of training and validation, are accumulated together."""
        for module in self._owner:
            epoch = getattr(module, "current_epoch", None)
            if self._epoch not in (None, epoch):
                self._warn(
                    "epochs",
                    f"A source should be ended with every epoch. Found items of epochs"
                    f" {self._epoch} and {epoch}, which are accumulated together: call `end()` in"
                    " `on_train_epoch_end`, or in the corresponding hook of another stage.",
                )
            self._epoch = epoch
            training = getattr(module, "training", None)
            if self._training not in (None, training):
                self._warn(
                    "stages",
                    "A source should have items of training, or of validation. Found items of both,"
                    " which are accumulated together: make a source for each, or call `end()` in"
                    " `on_train_epoch_end` and in `on_validation_epoch_start`.",
                )
            self._training = training

    def _warn(self, kind: str, text: str) -> None:
        """Warns once of each kind of mistake."""
        if kind not in self._told:
            rank_zero_warn(text)
        self._told.add(kind)


def _flatten(stage: Any) -> Iterator[nn.Module]:
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
    elif has_verbs(stage) and not isinstance(stage, Metric):
        yield VerbAdapter(stage)
    elif isinstance(stage, nn.Module) and not isinstance(stage, Pipe):
        yield stage
    elif callable(stage) and not isinstance(stage, nn.Module):
        yield Function(stage)
    else:
        raise TypeError(
            f"A stage should be a callable or a metric. Found `{stage!r}`: send items through a"
            " pipe with `pipe.run(items)`; a `Source` stands first."
        )


def _send_on(stages: list[Stage], item: Any) -> Any:
    """Sends a result through stages, and returns that of the last."""
    for stage in stages:
        item = stage.send(item)
    return item


def _raise(error: Exception) -> None:
    """Raises an error that occurred before."""
    raise error


def _waits(module: Any) -> bool:
    """Returns whether an accumulator holds many items, and nobody has looked at their result."""
    if not (isinstance(module, Stage) and isinstance(module, Metric) and module.accumulates):
        return False
    return module._computed is None and module._update_count >= _MANY


Stage.join_with(Pipe)
