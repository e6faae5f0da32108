"""Spikes by their indices: everything that is written for speed, behind a few functions."""

from lightning_accum.sparse.events import Events, density, event_matmul, event_outer_sum

__all__ = ["Events", "density", "event_matmul", "event_outer_sum"]
