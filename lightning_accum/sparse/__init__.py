"""Code written for speed: spikes by their indices, buffers, and the cost model."""

from lightning_accum.sparse.event_sums import event_matmul, event_outer_sum
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.search import density

__all__ = ["Events", "density", "event_matmul", "event_outer_sum"]
