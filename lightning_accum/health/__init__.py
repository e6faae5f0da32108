"""What tells people that nothing is learned; nothing below knows of it."""

from lightning_accum.health.by_hand import events_by_hand
from lightning_accum.health.watch import Health, LocalLearningWarning, switched_off

__all__ = ["Health", "LocalLearningWarning", "events_by_hand", "switched_off"]
