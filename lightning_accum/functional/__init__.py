"""Pure functions of tensors: traces, kernels, surrogates, an encoder, statistics."""

from lightning_accum.functional.bounds import FullBounding, HalfBounding
from lightning_accum.functional.kernels import ExponentialKernel, GaussianKernel
from lightning_accum.functional.spikes import (
    ArcTan,
    FastSigmoid,
    Surrogate,
    Triangular,
    poisson_encode,
)
from lightning_accum.functional.traces import TraceMode, decay_factor, reverse_trace, trace
from lightning_accum.functional.update_statistics import update_statistics

__all__ = [
    "ArcTan",
    "ExponentialKernel",
    "FastSigmoid",
    "FullBounding",
    "GaussianKernel",
    "HalfBounding",
    "Surrogate",
    "TraceMode",
    "Triangular",
    "decay_factor",
    "poisson_encode",
    "reverse_trace",
    "trace",
    "update_statistics",
]
