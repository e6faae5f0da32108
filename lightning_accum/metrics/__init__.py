"""Metrics: what updates did, how neurons fire, and which class they stand for."""

from lightning_accum.metrics.max_rate import MaxRateClassifier
from lightning_accum.metrics.update_statistics import FiringStatistics, UpdateStatistics

__all__ = ["FiringStatistics", "MaxRateClassifier", "UpdateStatistics"]
