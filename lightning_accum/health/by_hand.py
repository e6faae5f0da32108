"""Watches a rule that is called and applied by a loop of the user's own."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from lightning_accum._events import SILENT, Events
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.health.setup import twin
from lightning_accum.health.watch import Health


def events_by_hand(trainer: CellTrainer, name: str) -> Events:
    """Returns what listens to a trainer that has just got a cell; it ends with the trainer.

    Args:
        trainer: the trainer.
        name: the name of the cell.
    """
    health = trainer.events
    if not isinstance(health, Health):
        health = Health(trainer)
        weakref.finalize(trainer, _end, health)
    health.add(name)
    if text := twin(trainer, name):
        health.say(name, "setup", text)
    updater = trainer.registry.updater(name)
    if updater is not None:
        updater.events = _joined(updater.events, health)
    return health


def _end(health: Health) -> None:
    """Ends a trainer's health: when the trainer is deleted, or the program ends."""
    health.ended("exit" if health.has_trainer else "deleted")


def _joined(one: Events, other: Health) -> Events:
    """Returns what passes the events of an updater to all that still listen."""
    known = one.all if isinstance(one, Several) else [one]
    left = [each for each in known if each is not other and _listens(each)]
    return Several([*left, other]) if left else other


def _listens(events: Events) -> bool:
    return not events.over if isinstance(events, Health) else events is not SILENT


class Several(Events):
    """Passes the events of an updater that several rules share to what listens to each."""

    def __init__(self, found: Sequence[Events]) -> None:
        self.all = found

    def applying(self, updater: Any, names: Sequence[str]) -> None:
        """Passes it on."""
        for each in self.all:
            each.applying(updater, names)

    def applied(self, updater: Any, names: Sequence[str], scale: Mapping[str, float]) -> None:
        """Passes it on."""
        for each in self.all:
            each.applied(updater, names, scale)

    def exported(self, updater: Any, names: Sequence[str]) -> None:
        """Passes it on."""
        for each in self.all:
            each.exported(updater, names)
