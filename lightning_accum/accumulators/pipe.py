"""Pipes of stages, from the result of a step to a logger."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain
from numbers import Number
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.metric import CompositionalMetric
from torchmetrics.utilities import rank_zero_warn

from lightning_accum.accumulators._flow import Flow
from lightning_accum.accumulators._links import Ends, Link
from lightning_accum.accumulators._stage import Function, Stage, link
from lightning_accum.accumulators.custom import VerbAdapter, has_verbs
from lightning_accum.accumulators.split import Split


class Place(Enum):
    """The place of a pipe, which decides who takes its results."""

    FREE = "free: the caller takes the results"
    BRANCH = "a branch of a split: nobody takes the results"
    ATTACHED = "attached to a source: nobody takes the results, and ** adds a branch"


class Pipe(Flow):
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
        self._links = [link(stage) for stage in self.stages]
        self._place = Place.FREE
        # Whether the items are results of all processes already.
        self._settled = False
        for behind in self._links_behind_accumulator():
            behind.settle()

    def __pow__(self, other: Any) -> Pipe:
        """Returns a pipe that ends with another stage, attached to a source if this one is."""
        if self._place is Place.ATTACHED:
            return self._fork(Pipe(other))
        return Pipe(self, other).bind_as(self)

    def __rpow__(self, other: Any) -> Pipe:
        """Returns a pipe that begins with another stage."""
        return Pipe(other, self).bind_as(self)

    def forward(self, item: Any) -> Any:
        """Sends an item through, as far as the first accumulator.

        Args:
            item: the result of a step.

        Returns:
            The result of the last stage; ``None`` if an accumulator stopped the item.
        """
        self.begin()
        for stage in self._links:
            item = stage.step(item)
            if stage.accumulates:
                return None
        return item

    def send(self, item: Any) -> Any:
        """Sends an accumulated result through all stages.

        Args:
            item: the result.

        Returns:
            The result of the last stage.
        """
        self.begin()
        return _send_on(self._links, item)

    @property
    def is_free(self) -> bool:
        """Whether this pipe is not a branch of a split, or attached to a source."""
        return self._place is Place.FREE

    def as_branch(self) -> Pipe:
        """Makes this pipe a branch of a split, and returns it."""
        self._place = Place.BRANCH
        return self

    def attach_to(self, flow: Flow) -> Pipe:
        """Attaches this pipe to a source, or to a pipe of a source, and returns it."""
        self._place = Place.ATTACHED
        return self.bind_as(flow)

    def settle(self) -> None:
        """Makes all accumulators local, since they get results of all processes."""
        self._settled = True
        for stage in self._links:
            stage.settle()

    def bind_stages(self, module: Any) -> None:
        """Binds all stages to a module."""
        for stage in self._links:
            stage.bind(module)

    def check(self) -> None:
        """Warns of results that would be lost."""
        for stage in self._links:
            stage.begin()
        if self._place is not Place.FREE and self._links and self._links[-1].only_computes:
            rank_zero_warn(
                f"A pipe of a source or a split should end in a stage that takes its values."
                f" Found `{self.stages[-1]}`, so that nothing is logged: put a `Log`, a `Scalar`"
                " or a function behind it."
            )

    def ends(self) -> Ends:
        """Computes and resets the accumulated results, and yields calls that send them on."""
        for i, stage in enumerate(self._links):
            if stage.accumulates:
                yield self._ended(stage.stage, self._links[i + 1 :])
                return
            yield from stage.ends()
        yield lambda: None

    def forget(self) -> None:
        """Resets everything accumulated since the iteration began."""
        for stage in self._links:
            stage.forget()
            if stage.accumulates:
                return

    def _ended(self, accumulator: Metric, behind: list[Link]) -> Callable[[], Any]:
        try:
            result = accumulator.compute()
        except Exception as error:
            return functools.partial(_raise, error)
        finally:
            accumulator.reset()
        return functools.partial(_send_on, behind, result)

    def _links_behind_accumulator(self) -> list[Link]:
        kinds = [stage.accumulates for stage in self._links]
        return self._links[kinds.index(True) + 1 :] if True in kinds else []

    def _fork(self, branch: Pipe) -> Pipe:
        """Adds a branch to the split at the end of this pipe."""
        last = self.stages[-1] if len(self.stages) else None
        if not isinstance(last, Split):
            last = Split()
            self.stages.append(last)
            self._links.append(last.link())
        last.branches.append(branch)
        if self._settled or self._links[-1] in self._links_behind_accumulator():
            branch.settle()
        return branch.attach_to(self)


def _flatten(stage: Any) -> Iterator[nn.Module]:
    if isinstance(stage, CompositionalMetric) and stage.op is torch.pow:
        # torchmetrics takes `Accuracy() ** stage` as a power: in a pipe it joins stages.
        parts = (stage.metric_a, stage.metric_b)
        if not any(part is None or isinstance(part, Number | Tensor) for part in parts):
            for part in parts:
                yield from _flatten(part)
            return
    if isinstance(stage, Pipe):
        yield from stage.stages
    elif has_verbs(stage) and not isinstance(stage, Metric):
        yield VerbAdapter(stage)
    elif isinstance(stage, nn.Module) and not isinstance(stage, Flow):
        yield stage
    elif callable(stage) and not isinstance(stage, nn.Module):
        yield Function(stage)
    else:
        raise TypeError(
            f"A stage should be a callable or a metric. Found `{stage!r}`: send items through a"
            " pipe with `pipe.run(items)`; a `Source` stands first."
        )


def _send_on(links: list[Link], item: Any) -> Any:
    for stage in links:
        item = stage.send(item)
    return item


def _raise(error: Exception) -> None:
    raise error


Stage.join_with(Pipe)
