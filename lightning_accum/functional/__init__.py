"""Pure functions of tensors: traces, kernels, surrogates, an encoder, statistics."""

from typing import Any

from lightning_accum.functional.bounds import FullBounding, HalfBounding, bound_named
from lightning_accum.functional.kernels import ExponentialKernel, GaussianKernel
from lightning_accum.functional.surrogate_gradients import (
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


def __getattr__(name: str) -> Any:
    """Returns a bound of the package as a function, such as ``bound_upper_power``."""
    return bound_named(name)
