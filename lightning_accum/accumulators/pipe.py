"""Pipes of stages, from what a step returns to where its values go."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from numbers import Number
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.metric import CompositionalMetric
from torchmetrics.utilities import rank_zero_warn

from lightning_accum.accumulators._arguments import Function, arguments, call
from lightning_accum.accumulators._base import StreamAccumulator
from lightning_accum.accumulators._flow import Ends, Flow
from lightning_accum.accumulators._own import Own
from lightning_accum.accumulators._stage import Stage
from lightning_accum.accumulators._verbs import has_verbs
from lightning_accum.accumulators.selecting import Select
from lightning_accum.accumulators.split import Split


class Pipe(Flow):
    """Stages that items pass through, one after the other; ``**`` puts them together.

    A stage is any callable or torchmetrics metric, and takes what the one before it returned. The
    first accumulator stops an item and adds it up. When the iteration ends, it passes its result on
    to the stages after it and is reset, and so are the metrics before it. An accumulator further on
    counts iterations: it passes on its result so far, and is not reset.

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
        self.stages = nn.ModuleList(flat for stage in stages for flat in _flatten(stage))
        # Whether it hangs on a source, so that what is put behind it hangs there too.
        self._attached = False
        # Whether what it returns is lost.
        self._is_branch = False
        # Whether what it is given is an accumulated result.
        self._late = False
        for stage in self._tail():
            _settle(stage)

    def __pow__(self, other: Any) -> Pipe:
        """A pipe that goes on with another stage; where this one hangs on a source, so does it."""
        if self._attached:
            return self._fork(Pipe(other))
        return Pipe(self, other)._bind_as(self)

    def __rpow__(self, other: Any) -> Pipe:
        """A pipe that begins with another stage."""
        return Pipe(other, self)._bind_as(self)

    def forward(self, item: Any) -> Any:
        """Sends an item through, as far as the first accumulator.

        Args:
            item: what a step returned.

        Returns:
            What the last stage returned; nothing where an accumulator stopped the item.
        """
        self._begin()
        for stage in self.stages:
            if isinstance(stage, StreamAccumulator):
                args, kwargs = arguments(stage, item)
                stage.update(*args, **kwargs)
                return None
            item = stage._step(item) if isinstance(stage, Split) else call(stage, item)
        return item

    def _attach(self, flow: Flow) -> Pipe:
        """Hangs this pipe on a source, or on a pipe that does."""
        self._attached = True
        return self._branch()._bind_as(flow)

    def _branch(self) -> Pipe:
        """Nobody takes what it returns."""
        self._is_branch = True
        return self

    def _through(self, item: Any) -> Any:
        """Sends an accumulated result through all stages."""
        self._begin()
        for stage in self.stages:
            item = call(stage, item)
        return item

    def _ends(self) -> Ends:
        for stage in self.stages:
            if isinstance(stage, StreamAccumulator):
                yield self._ended(stage)
                return
            if isinstance(stage, Split):
                yield from stage._ends()
            elif isinstance(stage, Metric | MetricCollection):
                stage.reset()
        yield lambda: None

    def _ended(self, accumulator: StreamAccumulator) -> Callable[[], Any]:
        try:
            result = accumulator.compute()
        except Exception as error:
            return functools.partial(_raise, error)
        finally:
            accumulator.reset()
        return functools.partial(self._send_on, result)

    def _send_on(self, item: Any) -> Any:
        for stage in self._tail():
            item = call(stage, item)
        return item

    def _forget(self) -> None:
        for stage in self.stages:
            if isinstance(stage, Split):
                stage._forget()
            elif isinstance(stage, Metric | MetricCollection):
                stage.reset()
            if isinstance(stage, StreamAccumulator):
                return

    def _check_end(self) -> None:
        last = self.stages[-1] if len(self.stages) else None
        if self._is_branch and isinstance(last, Select | Metric | MetricCollection):
            rank_zero_warn(
                f"A pipe of a source or a split should end in a stage that takes its values."
                f" Found `{last}`, so that nothing is logged: put a `Log`, a `Scalar` or a"
                " function behind it."
            )

    def _tail(self) -> list[nn.Module]:
        """The stages after the first accumulator, or all where accumulated results come in."""
        stages = list(self.stages)
        if self._late:
            return stages
        kinds = [isinstance(stage, StreamAccumulator) for stage in stages]
        return stages[kinds.index(True) + 1 :] if True in kinds else []

    def _fork(self, branch: Pipe) -> Pipe:
        if not len(self.stages) or not isinstance(self.stages[-1], Split):
            self.stages.append(Split())
        split = self.stages[-1]
        assert isinstance(split, Split)
        split.branches.append(branch)
        if split in self._tail():
            _settle(split)
        return branch._attach(self)


def _flatten(stage: Any) -> Iterator[nn.Module]:
    if isinstance(stage, CompositionalMetric) and stage.op is torch.pow:
        # `Accuracy() ** stage` is torchmetrics' own power: in a pipe, one of stages.
        parts = (stage.metric_a, stage.metric_b)
        if not any(part is None or isinstance(part, Number | Tensor) for part in parts):
            for part in parts:
                yield from _flatten(part)
            return
    if isinstance(stage, Pipe):
        yield from stage.stages
    elif has_verbs(stage) and not isinstance(stage, Metric):
        yield Own(stage)
    elif isinstance(stage, nn.Module) and not isinstance(stage, Flow):
        yield stage
    elif callable(stage) and not isinstance(stage, nn.Module):
        yield Function(stage)
    else:
        raise TypeError(
            f"A stage should be a callable or a metric. Found `{stage!r}`: send items through a"
            " pipe with `pipe.run(items)`; a `Source` stands first."
        )


def _raise(error: Exception) -> None:
    raise error


def _settle(stage: nn.Module) -> None:
    """Tells what lies behind an accumulator that its values are those of all processes already."""
    for module in stage.modules():
        if isinstance(module, Pipe):
            module._late = True
        elif isinstance(module, StreamAccumulator):
            module.sync_on_compute = module._to_sync = False


Stage.join_with(Pipe)
