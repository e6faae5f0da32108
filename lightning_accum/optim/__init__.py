"""Optimizers."""

from lightning_accum.optim.update import UpdateOptimizer

__all__ = ["UpdateOptimizer"]
