"""Torchmetrics of updates, of activity, and of classification by rates."""

from lightning_accum.metrics.max_rate_classifier import MaxRateClassifier
from lightning_accum.metrics.update_statistics import FiringStatistics, UpdateStatistics

__all__ = ["FiringStatistics", "MaxRateClassifier", "UpdateStatistics"]
