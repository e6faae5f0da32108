"""What tells people that nothing is learned; nothing below knows of it."""

from lightning_accum.health.by_hand import events_by_hand
from lightning_accum.health.watch import Health, LocalLearningWarning

__all__ = ["Health", "LocalLearningWarning", "events_by_hand"]
