"""What tells people that nothing is learned; nothing below knows of it."""

from lightning_accum.health.watch import LocalLearningWarning

__all__ = ["LocalLearningWarning"]
