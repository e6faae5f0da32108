"""Local learning rules, accumulated updates and update statistics for PyTorch Lightning."""

from __future__ import annotations

import importlib
import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch

from lightning_accum._checks import nearest
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
from lightning_accum.sparse.kernel_library import library, why_not
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
_REPORTED = ("torch", "lightning", "torchmetrics", "tensorboard", "numpy")


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


def show_versions() -> None:
    """Prints what a report of a problem should name.

    These are the versions of this package and of what it needs, the machine, its GPU, and whether
    the compiled kernel is in use, with the reason if it is not.

    Example:
        >>> from lightning_accum import show_versions
        >>> show_versions()
        lightning_accum ...
        Python ...
    """
    lines = {"lightning_accum": _version("lightning-accum"), "Python": platform.python_version()}
    lines |= {name: _version(name) for name in _REPORTED}
    gpu = torch.cuda.is_available()
    lines |= {
        "platform": platform.platform(),
        "GPU": torch.cuda.get_device_name() if gpu else "none",
    }
    kernel = library(torch.float32)
    lines["compiled kernel"] = f"none: {why_not()}" if kernel is None else f"for {kernel.level}"
    for name, value in lines.items():
        print(f"{name:<16} {value}")


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


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
