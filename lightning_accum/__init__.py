"""Local learning rules, accumulated updates and update statistics for PyTorch Lightning."""

from lightning_accum.learn import (
    MSTDP,
    STDP,
    Cell,
    CellSpec,
    CellTrainer,
    Hebb,
    IndependentCellTrainer,
    Layer,
    Rule,
    Serial,
    Term,
    TripletSTDP,
)
from lightning_accum.observe import (
    InputMonitor,
    Latest,
    Monitor,
    OutputMonitor,
    Reducer,
    StateMonitor,
    WindowRecorder,
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

__all__ = [
    "MSTDP",
    "STDP",
    "Accumulator",
    "Cell",
    "CellSpec",
    "CellTrainer",
    "Clamp",
    "Hebb",
    "IndependentCellTrainer",
    "InputMonitor",
    "Latest",
    "Layer",
    "Monitor",
    "NonFiniteUpdateError",
    "Normalize",
    "OutputMonitor",
    "Reducer",
    "Rule",
    "Serial",
    "StateMonitor",
    "Term",
    "TripletSTDP",
    "Updatable",
    "Updater",
    "WindowRecorder",
    "attach_updater",
    "get_updater",
]
