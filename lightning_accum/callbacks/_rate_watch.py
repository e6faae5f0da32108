"""Watches the rates with which optimizers apply updates, and finds schedules that prevent them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import lightning.pytorch as pl

from lightning_accum._checks import quoted
from lightning_accum.callbacks._finding import number
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._schedule import Interval
from lightning_accum.optim import UpdateOptimizer

_SMALL = 1e-2  # of the rate before any scheduler changed it


class Rate(NamedTuple):
    """The factor with which an optimizer applies the updates of a parameter.

    Attributes:
        lr: the factor now.
        first: the factor before any scheduler changed it.
        slow: whether a scheduler kept it below a hundredth of that in at least half of the updates.
    """

    lr: float = 1.0
    first: float = 1.0
    slow: bool = False


class _Stepped(NamedTuple):
    """How the scheduler of an optimizer is stepped.

    Attributes:
        scheduler: what to call it.
        by_module: whether the module has to step it.
        more: how to have it step more often; empty if nothing does.
        less: how to have it step less often; empty if nothing does.
    """

    scheduler: str
    by_module: bool
    more: str
    less: str


@dataclass
class _Count:
    """Counts the updates of a parameter group, and those with a small rate."""

    group: dict[str, Any]
    first: float  # the rates of the first update, and of the latest
    last: float
    updates: int = 0
    small: int = 0

    @property
    def own(self) -> float:
        """The rate before any scheduler changed it; `ReduceLROnPlateau` does not note it."""
        return float(self.group.get("initial_lr", self.first))

    @property
    def steady(self) -> bool:
        return self.first == self.last

    @property
    def slow(self) -> bool:
        return 0 < self.updates <= 2 * self.small


class RateWatch:
    """Counts in how many updates of a fit a scheduler kept the rate near zero."""

    def __init__(self) -> None:
        self._counts: dict[int, _Count] = {}  # by the id of the group
        self._scale = 0.0  # the largest one of a loop

    def note(self, optimizer: UpdateOptimizer) -> None:
        """Counts an update.

        Args:
            optimizer: the optimizer that has applied it.
        """
        for group in optimizer.param_groups:
            lr, count = float(group["lr"]), self._count(group)
            count.updates += 1
            count.last = lr
            if lr < _SMALL * count.own:
                count.small += 1

    def note_scale(self, scale: float) -> None:
        """Notes the factor of an update that a loop applies."""
        self._scale = max(self._scale, scale)

    def rates(
        self, optimizers: Iterable[UpdateOptimizer], of_loop: Iterable[int] = ()
    ) -> dict[int, Rate]:
        """Returns the rate of each parameter that optimizers hold, by its ``id``.

        Args:
            optimizers: the optimizers that apply updates.
            of_loop: the ``id`` of each parameter to which a loop applies them.
        """
        return {key: Rate(self._scale, self._scale) for key in of_loop if self._scale} | {
            key: Rate(count.last, count.own, count.slow)
            for optimizer in optimizers
            for key, group in optimizer.group_of.items()
            for count in (self._count(group),)
        }

    def _count(self, group: dict[str, Any]) -> _Count:
        count = self._counts.get(id(group))
        if count is None:
            lr = float(group["lr"])
            count = self._counts[id(group)] = _Count(group, lr, lr)
        return count

    def slow(self, host: CellHost, optimizers: Iterable[UpdateOptimizer]) -> list[str]:
        """Returns the names of the parameters that a scheduler kept from learning.

        Args:
            host: the host of the cells.
            optimizers: the optimizers that apply updates.
        """
        rates = self.rates(optimizers)
        return [name for key, name in _names(host).items() if key in rates and rates[key].slow]

    def lines(
        self,
        host: CellHost,
        trainer: pl.Trainer,
        optimizers: Iterable[UpdateOptimizer],
        interval: Interval | None,
    ) -> list[str]:
        """Returns a line on each parameter group that a scheduler kept from learning.

        Args:
            host: the host of the cells.
            trainer: the Lightning trainer.
            optimizers: the optimizers that apply updates.
            interval: when the callback steps its scheduler; ``None`` if they are the module's own.
        """
        names, found = _names(host), []
        for optimizer in optimizers:
            stepped = _by_callback(interval) if interval else _by_trainer(trainer, optimizer)
            for group in optimizer.param_groups:
                count = self._count(group)
                held = [names[id(p)] for p in group["params"] if id(p) in names]
                if count.slow and held:
                    found.append(_line(count, held, stepped))
        return found


def _names(host: CellHost) -> dict[int, str]:
    """Returns the names of the parameters of cells, by ``id``."""
    return {
        id(updater.target(name)): f"{cell}.{name}"
        for cell, updater in host.updaters.items()
        for name in updater.names
    }


def _line(count: _Count, held: Sequence[str], stepped: _Stepped) -> str:
    span = f"{count.first:.3g}" if count.steady else f"from {count.first:.3g} to {count.last:.3g}"
    return (
        f"{stepped.scheduler} kept the `lr` of {quoted(held, ', ')} below {_SMALL * count.own:g}, a"
        f" hundredth of the optimizer's own, in {count.small} of {number(count.updates, 'update')}"
        f" ({span}), so that little was learned then: {_remedy(count, stepped)}."
    )


def _remedy(count: _Count, stepped: _Stepped) -> str:
    if count.steady and stepped.by_module:
        return (
            "call its `step()`, as in `self.lr_schedulers().step()`, which manual optimization"
            " leaves to the module"
        )
    how = stepped.more if count.last >= count.first else stepped.less
    what = (
        "let it warm up in fewer steps, or fall in more"
        if count.steady
        else "let it warm up in fewer steps"
        if count.last > count.first
        else "let it fall more slowly"
    )
    return f"{what}, or {how}" if how else what


def _by_callback(interval: Interval) -> _Stepped:
    """Returns how the scheduler that a callback makes is stepped."""
    by_epoch = interval == "epoch"
    more, less = "pass `lr_interval='update'`", "pass `lr_interval='epoch'`"
    return _Stepped("`lr_scheduler`", False, more if by_epoch else "", "" if by_epoch else less)


def _by_trainer(trainer: pl.Trainer, optimizer: UpdateOptimizer) -> _Stepped:
    """Returns how the scheduler of the module's own optimizer is stepped."""
    what = "The scheduler of the module's UpdateOptimizer"
    own = [each for each in trainer.lr_scheduler_configs if _is_of(each.scheduler, optimizer)]
    if not own or not trainer.lightning_module.automatic_optimization:
        return _Stepped(what, True, "step it more often", "step it less often")
    by_epoch, where = own[0].interval == "epoch", "in `configure_optimizers`"
    more, less = f'set `"interval": "step"` {where}', f'set `"interval": "epoch"` {where}'
    return _Stepped(what, False, more if by_epoch else "", "" if by_epoch else less)


def _is_of(scheduler: Any, optimizer: UpdateOptimizer) -> bool:
    return getattr(scheduler, "optimizer", None) is optimizer
