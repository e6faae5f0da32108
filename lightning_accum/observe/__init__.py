"""Monitors, which see the activity of modules, and reducers, which keep it."""

from lightning_accum.observe.difference import DifferenceMonitor
from lightning_accum.observe.gradient import GradientMonitor
from lightning_accum.observe.input_output import InputMonitor, OutputMonitor
from lightning_accum.observe.monitor import Monitor
from lightning_accum.observe.multi_state import MultiStateMonitor
from lightning_accum.observe.picking import Picker, first_tensor
from lightning_accum.observe.reducers.averages import CumulativeAverageReducer, EMAReducer
from lightning_accum.observe.reducers.base import Reducer
from lightning_accum.observe.reducers.event import EventReducer
from lightning_accum.observe.reducers.history import HistoryReducer
from lightning_accum.observe.reducers.latest import Latest
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
from lightning_accum.observe.state import StateMonitor
from lightning_accum.observe.unobserved import unobserved

__all__ = [
    "ConditionalCumulativeTraceReducer",
    "ConditionalNearestTraceReducer",
    "CumulativeAverageReducer",
    "CumulativeTraceReducer",
    "DifferenceMonitor",
    "EMAReducer",
    "EventReducer",
    "GradientMonitor",
    "HistoryReducer",
    "InputMonitor",
    "Latest",
    "Monitor",
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
