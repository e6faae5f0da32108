"""Recorded activity: monitors, and the reducers that keep what they see."""

from lightning_accum.observe.difference import DifferenceMonitor
from lightning_accum.observe.monitor import (
    InputMonitor,
    Monitor,
    MonitorConstructor,
    OutputMonitor,
    Picker,
    StateMonitor,
    first_tensor,
    unobserved,
)
from lightning_accum.observe.multistate import MultiStateMonitor
from lightning_accum.observe.pool import MonitorPool
from lightning_accum.observe.reducers.averages import CumulativeAverageReducer, EMAReducer
from lightning_accum.observe.reducers.base import Latest, Reducer
from lightning_accum.observe.reducers.event import EventReducer
from lightning_accum.observe.reducers.history import HistoryReducer
from lightning_accum.observe.reducers.passthrough import PassthroughReducer
from lightning_accum.observe.reducers.recorder import WindowRecorder
from lightning_accum.observe.reducers.trace import TraceReducer
from lightning_accum.observe.reducers.traces import (
    ConditionalCumulativeTraceReducer,
    ConditionalNearestTraceReducer,
    CumulativeTraceReducer,
    NearestTraceReducer,
    ScaledCumulativeTraceReducer,
    ScaledNearestTraceReducer,
)

__all__ = [
    "ConditionalCumulativeTraceReducer",
    "ConditionalNearestTraceReducer",
    "CumulativeAverageReducer",
    "CumulativeTraceReducer",
    "DifferenceMonitor",
    "EMAReducer",
    "EventReducer",
    "HistoryReducer",
    "InputMonitor",
    "Latest",
    "Monitor",
    "MonitorConstructor",
    "MonitorPool",
    "MultiStateMonitor",
    "NearestTraceReducer",
    "OutputMonitor",
    "PassthroughReducer",
    "Picker",
    "Reducer",
    "ScaledCumulativeTraceReducer",
    "ScaledNearestTraceReducer",
    "StateMonitor",
    "TraceReducer",
    "WindowRecorder",
    "first_tensor",
    "unobserved",
]
