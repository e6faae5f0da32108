"""Monitors, which see the activity of modules, and reducers, which keep it."""

from lightning_accum.observe.hooks import unobserved
from lightning_accum.observe.monitor import (
    InputMonitor,
    Monitor,
    OutputMonitor,
    Picker,
    first_tensor,
)
from lightning_accum.observe.monitors import (
    DifferenceMonitor,
    GradientMonitor,
    MultiStateMonitor,
    StateMonitor,
)
from lightning_accum.observe.reducers.base import Latest, Reducer
from lightning_accum.observe.reducers.history import (
    CumulativeAverageReducer,
    EMAReducer,
    EventReducer,
    HistoryReducer,
    PassthroughReducer,
    TraceReducer,
)
from lightning_accum.observe.reducers.recorder import WindowRecorder

__all__ = [
    "CumulativeAverageReducer",
    "DifferenceMonitor",
    "EMAReducer",
    "EventReducer",
    "GradientMonitor",
    "HistoryReducer",
    "InputMonitor",
    "Latest",
    "Monitor",
    "MultiStateMonitor",
    "OutputMonitor",
    "PassthroughReducer",
    "Picker",
    "Reducer",
    "StateMonitor",
    "TraceReducer",
    "WindowRecorder",
    "first_tensor",
    "unobserved",
]
