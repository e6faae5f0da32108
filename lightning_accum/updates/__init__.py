"""A parameter's pending change: accumulators, updaters, and modules that carry them."""

from lightning_accum.updates.accumulator import Accumulator
from lightning_accum.updates.atomic_changes import NonFiniteUpdateError
from lightning_accum.updates.constraints import Clamp, Normalize
from lightning_accum.updates.updatable import Updatable, attach_updater
from lightning_accum.updates.updater import Updater, get_updater

__all__ = [
    "Accumulator",
    "Clamp",
    "NonFiniteUpdateError",
    "Normalize",
    "Updatable",
    "Updater",
    "attach_updater",
    "get_updater",
]
