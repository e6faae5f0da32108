"""What tells people that nothing is learned; nothing below knows of it."""

from lightning_accum.health.watch import (
    Health,
    LocalLearningWarning,
    events_by_hand,
    switched_off,
)

__all__ = ["Health", "LocalLearningWarning", "events_by_hand", "switched_off"]
