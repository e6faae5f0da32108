"""Pure functions of tensors: bounds, traces, constraints, encoders, kernels, statistics."""

from lightning_accum.functional.bounds import (
    FullBounding,
    HalfBounding,
)
from lightning_accum.functional.constraints import clamp_, normalize_
from lightning_accum.functional.eligibility import (
    Eligibility,
    Remaining,
    fold_eligibility,
    fold_remaining,
)
from lightning_accum.functional.kernels import ExponentialKernel, GaussianKernel
from lightning_accum.functional.reductions import Reduction, reduction
from lightning_accum.functional.spikes import (
    ArcTan,
    FastSigmoid,
    Surrogate,
    Triangular,
    poisson_encode,
)
from lightning_accum.functional.traces import (
    TraceMode,
    decay_factor,
    reverse_trace,
    trace,
)
from lightning_accum.functional.update_statistics import spike_counts, update_statistics

__all__ = [
    "ArcTan",
    "Eligibility",
    "ExponentialKernel",
    "FastSigmoid",
    "FullBounding",
    "GaussianKernel",
    "HalfBounding",
    "Reduction",
    "Remaining",
    "Surrogate",
    "TraceMode",
    "Triangular",
    "clamp_",
    "decay_factor",
    "fold_eligibility",
    "fold_remaining",
    "normalize_",
    "poisson_encode",
    "reduction",
    "reverse_trace",
    "spike_counts",
    "trace",
    "update_statistics",
]
