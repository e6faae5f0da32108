"""Monitors, which see the activity of modules, and reducers, which keep it."""

from lightning_accum.observe.gradient_monitor import GradientMonitor, StateMonitor
from lightning_accum.observe.hooks import unobserved
from lightning_accum.observe.monitor import InputMonitor, Monitor, OutputMonitor
from lightning_accum.observe.recorder import WindowRecorder
from lightning_accum.observe.reducer import Reducer

__all__ = [
    "GradientMonitor",
    "InputMonitor",
    "Monitor",
    "OutputMonitor",
    "Reducer",
    "StateMonitor",
    "WindowRecorder",
    "unobserved",
]
