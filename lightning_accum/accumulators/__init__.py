"""Values accumulated over steps, and pipes that send them to a logger."""

from lightning_accum.accumulators._base import StreamAccumulator
from lightning_accum.accumulators.custom import CustomAccumulator
from lightning_accum.accumulators.ema import EMA
from lightning_accum.accumulators.extremes import Max, Min
from lightning_accum.accumulators.lists import List
from lightning_accum.accumulators.pipe import Pipe
from lightning_accum.accumulators.selecting import Select
from lightning_accum.accumulators.sinks import Log, Scalar
from lightning_accum.accumulators.skipping import Except
from lightning_accum.accumulators.source import Source
from lightning_accum.accumulators.split import Split
from lightning_accum.accumulators.sums import Mean, Sum
from lightning_accum.accumulators.sync import synchronize
from lightning_accum.accumulators.variance import Variance
from lightning_accum.accumulators.window import Window

__all__ = [
    "EMA",
    "CustomAccumulator",
    "Except",
    "List",
    "Log",
    "Max",
    "Mean",
    "Min",
    "Pipe",
    "Scalar",
    "Select",
    "Source",
    "Split",
    "StreamAccumulator",
    "Sum",
    "Variance",
    "Window",
    "synchronize",
]
