"""Finds two stages that log values of one name through one LightningModule."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

from torch import nn
from torchmetrics.utilities import rank_zero_warn


class _Logged(NamedTuple):
    """Who logged a name last, and in which epoch of which run."""

    stage: weakref.ref[nn.Module]
    epoch: tuple[Any, ...]
    warned: bool


_LAST: weakref.WeakKeyDictionary[Any, dict[str, _Logged]] = weakref.WeakKeyDictionary()


def note_logged(module: Any, stage: nn.Module, name: str) -> None:
    """Warns, once for a name, if another stage has logged the name in the same epoch.

    Args:
        module: the LightningModule; others, and those without a Trainer, are left out.
        stage: the stage that logs a value now.
        name: the name of the value.
    """
    epoch = _epoch(module)
    if epoch is None:
        return
    names = _LAST.setdefault(module, {})
    last = names.get(name)
    other = None if last is None or last.epoch != epoch else last.stage()
    warned = last is not None and last.warned
    if other is not None and other is not stage and not warned:
        warned = True
        rank_zero_warn(
            f"Each name should be logged by one `Log` of a LightningModule. Found `{name}` logged"
            f" in one epoch by {_place(module, other)} and by {_place(module, stage)}, so that one"
            " value overwrites the other, or is averaged with it: rename one of them."
        )
    names[name] = _Logged(weakref.ref(stage), epoch, warned)


def _epoch(module: Any) -> tuple[Any, ...] | None:
    """Returns the run and the epoch of a LightningModule; ``None`` if it is not in a run."""
    try:
        trainer = module.trainer
        return id(trainer), trainer.state.fn, trainer.current_epoch
    except (AttributeError, RuntimeError):  # Lightning's property raises without a Trainer
        return None


def _place(module: Any, stage: nn.Module) -> str:
    """Returns where a stage stands in a module."""
    paths = (path for path, each in module.named_modules() if each is stage)
    path = next(paths, None)
    return "a pipe that is not an attribute of it" if path is None else f"`{path}`"
