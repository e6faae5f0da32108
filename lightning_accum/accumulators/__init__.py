"""Values accumulated over steps, and pipes that send them to a logger."""

from lightning_accum.accumulators.base import StreamAccumulator, synchronize
from lightning_accum.accumulators.custom import CustomAccumulator
from lightning_accum.accumulators.kept_values import List, Window
from lightning_accum.accumulators.pipe import Pipe, Source, Split
from lightning_accum.accumulators.pipe_stage import Log, Scalar, Select
from lightning_accum.accumulators.skipping import Except
from lightning_accum.accumulators.statistics import EMA, Max, Min, Variance
from lightning_accum.accumulators.sums import Mean, Sum

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
