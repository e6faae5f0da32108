"""Local learning rules, accumulated updates and update statistics for PyTorch Lightning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lightning_accum._checks import nearest
from lightning_accum._show_versions import show_versions
from lightning_accum.cells import (
    Cell,
    CellSpec,
    CellTrainer,
    Layer,
    Populations,
    RuleTrainer,
    Serial,
)
from lightning_accum.engine import Term
from lightning_accum.health import LocalLearningWarning
from lightning_accum.health.watch import events_by_hand
from lightning_accum.rules import (
    BCM,
    MSTDP,
    MSTDPET,
    OTTT,
    STDP,
    STLLR,
    AntiHebb,
    Clopath,
    Covariance,
    DelayAdjustedKernelSTDP,
    DelayAdjustedSTDP,
    DeltaRule,
    EProp,
    FastWeights,
    Hebb,
    Homeostasis,
    InhibitorySTDP,
    KernelSTDP,
    Neuromodulator,
    Oja,
    Rule,
    Sanger,
    SoftHebb,
    TripletSTDP,
    WeightDependentSTDP,
    WTAHebb,
    change_of,
    learn_online,
)
from lightning_accum.updates import (
    Accumulator,
    Clamp,
    NonFiniteUpdateError,
    Normalize,
    Updatable,
    Updater,
    attach_updater,
    get_updater,
)

if TYPE_CHECKING:
    from lightning_accum.callbacks import CellTrainerCallback as CellTrainerCallback
    from lightning_accum.callbacks import CellTrainerCLI as CellTrainerCLI
    from lightning_accum.callbacks import FabricCellTrainer as FabricCellTrainer
    from lightning_accum.callbacks import OnlineProbe as OnlineProbe
    from lightning_accum.callbacks import UpdateMonitor as UpdateMonitor

__version__ = "0.1.0"

RuleTrainer.default_events = staticmethod(events_by_hand)

# What is imported when it is first used: with Lightning, or with libraries that may be missing.
_HOSTS = (
    "CellTrainerCLI",
    "CellTrainerCallback",
    "FabricCellTrainer",
    "OnlineProbe",
    "UpdateMonitor",
)
_LATE = ("accumulators", "callbacks", "metrics", "nir", "plot")
_MODULES = ("cells", "engine", "functional", "health", "nn", "observe", "optim", "rules", "updates")


def __getattr__(name: str) -> Any:
    """Imports what is not there yet."""
    if name in _HOSTS:
        return getattr(importlib.import_module("lightning_accum.callbacks"), name)
    if name in _LATE:
        return importlib.import_module(f"lightning_accum.{name}")
    known = nearest(name, __dir__())
    raise AttributeError(f"Module `lightning_accum` has no attribute `{name}`{known}")


def __dir__() -> list[str]:
    """Returns the public names and modules."""
    return sorted({*__all__, *_HOSTS, *_LATE, *_MODULES})


__all__ = [
    "BCM",
    "MSTDP",
    "MSTDPET",
    "OTTT",
    "STDP",
    "STLLR",
    "Accumulator",
    "AntiHebb",
    "Cell",
    "CellSpec",
    "CellTrainer",
    "Clamp",
    "Clopath",
    "Covariance",
    "DelayAdjustedKernelSTDP",
    "DelayAdjustedSTDP",
    "DeltaRule",
    "EProp",
    "FastWeights",
    "Hebb",
    "Homeostasis",
    "InhibitorySTDP",
    "KernelSTDP",
    "Layer",
    "LocalLearningWarning",
    "Neuromodulator",
    "NonFiniteUpdateError",
    "Normalize",
    "Oja",
    "Populations",
    "Rule",
    "RuleTrainer",
    "Sanger",
    "Serial",
    "SoftHebb",
    "Term",
    "TripletSTDP",
    "Updatable",
    "Updater",
    "WTAHebb",
    "WeightDependentSTDP",
    "attach_updater",
    "change_of",
    "get_updater",
    "learn_online",
    "show_versions",
]
