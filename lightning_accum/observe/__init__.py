"""Recorded activity: monitors, and the reducers that keep what they see."""

from lightning_accum.observe.monitor import (
    InputMonitor,
    Monitor,
    MonitorConstructor,
    OutputMonitor,
    StateMonitor,
    first_tensor,
    unobserved,
)
from lightning_accum.observe.pool import MonitorPool
from lightning_accum.observe.recorder import WindowRecorder
from lightning_accum.observe.reducer import Latest, Reducer

__all__ = [
    "InputMonitor",
    "Latest",
    "Monitor",
    "MonitorConstructor",
    "MonitorPool",
    "OutputMonitor",
    "Reducer",
    "StateMonitor",
    "WindowRecorder",
    "first_tensor",
    "unobserved",
]
