"""The activity of neurons, measured until the metric is reset."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_accum.functional.statistics import spike_counts
from lightning_accum.metrics._panels import PanelMetric
from lightning_accum.plot.panels import Panel
from lightning_accum.sparse.binary import count_spikes


class FiringStatistics(PanelMetric):
    """Measures how active neurons were since the last reset.

    ``compute`` returns ``firing_rate``, the mean number of spikes in a step of one sample and
    neuron, and ``silent_share``, the share of neurons that never fired. The number of neurons is
    known from the first update; every process needs one before their states are combined.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        >>> import torch
        >>> stats = FiringStatistics()
        >>> stats.update(torch.tensor([[[1, 0]], [[1, 0]]]))
        >>> stats.compute()
        {'firing_rate': tensor(0.5000), 'silent_share': tensor(0.5000)}
    """

    _panels = (
        Panel("spikes per step", ("firing_rate",)),
        Panel("share of the neurons", ("silent_share",), limits=(0.0, 1.05)),
    )
    counts: Tensor
    steps: Tensor

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_sum("counts", torch.zeros(1))
        self.add_sum("steps", torch.zeros((), dtype=torch.long))

    def update(self, spikes: Tensor) -> None:
        """Counts spikes.

        Args:
            spikes: activity of shape ``[T, B, ...]`` and any dtype, 0 or 1; its values are checked
                only on the CPU, where nothing waits for them.

        Raises:
            ValueError: if there is no neuron dimension, another number of neurons than before, or
                a value that is neither 0 nor 1.
        """
        found = spike_counts(spikes)
        if spikes.is_cpu and spikes.dtype != torch.bool and count_spikes(spikes) is None:
            raise ValueError(
                "Argument `spikes` should be 0 or 1, so that their mean is a firing rate. Found"
                f" values from {spikes.min():g} to {spikes.max():g}: pass what the neuron fires,"
                " such as `spikes > 0`, and average graded activity with"
                " `lightning_accum.accumulators.Mean`."
            )
        if self.counts.numel() not in (1, found.numel()):
            raise ValueError(
                f"Argument `spikes` should have {self.counts.numel()} neurons, as before. Found"
                f" {found.numel()} in `spikes.shape = {tuple(spikes.shape)}`: keep one metric for"
                " each layer, or reset it."
            )
        self.counts = self.counts + found
        self.steps = self.steps + spikes.shape[0] * spikes.shape[1]

    def compute(self) -> dict[str, Tensor]:
        """Returns the statistics by name, float32 scalars."""
        return {
            "firing_rate": self.counts.mean() / self.steps.clamp(min=1),
            "silent_share": (self.counts == 0).float().mean(),
        }
