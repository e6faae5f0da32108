"""Torchmetrics of updates, of activity, and of classification by rates."""

from lightning_accum.metrics.firing_statistics import FiringStatistics
from lightning_accum.metrics.max_rate import MaxRateClassifier
from lightning_accum.metrics.update_statistics import UpdateStatistics

__all__ = ["FiringStatistics", "MaxRateClassifier", "UpdateStatistics"]
