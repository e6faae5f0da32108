"""Local learning rules, accumulated updates and update statistics for PyTorch Lightning."""

from lightning_accum._versions import show_versions
from lightning_accum.cells import Cell, CellSpec, CellTrainer, IndependentCellTrainer, Layer, Serial
from lightning_accum.engine import Term
from lightning_accum.health import LocalLearningWarning, events_by_hand
from lightning_accum.rules import (
    BCM,
    MSTDP,
    MSTDPET,
    OTTT,
    STDP,
    AntiHebb,
    Clopath,
    Covariance,
    DelayAdjustedKernelSTDP,
    DelayAdjustedSTDP,
    DeltaRule,
    EProp,
    Hebb,
    Homeostasis,
    InhibitorySTDP,
    KernelSTDP,
    Oja,
    Rule,
    Sanger,
    SoftHebb,
    TripletSTDP,
    WeightDependentSTDP,
    WTAHebb,
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

__version__ = "0.1.0"

Rule.default_events = staticmethod(events_by_hand)

__all__ = [
    "BCM",
    "MSTDP",
    "MSTDPET",
    "OTTT",
    "STDP",
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
    "Hebb",
    "Homeostasis",
    "IndependentCellTrainer",
    "InhibitorySTDP",
    "KernelSTDP",
    "Layer",
    "LocalLearningWarning",
    "NonFiniteUpdateError",
    "Normalize",
    "Oja",
    "Rule",
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
    "get_updater",
    "show_versions",
]
