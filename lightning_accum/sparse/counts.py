"""The activity of neurons, in one pass over their spikes where there is a kernel."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from lightning_accum.functional.statistics import count_statistics, spike_counts
from lightning_accum.sparse.kernel_counts import count_neurons, sum_counts


def fast_spike_counts(spikes: Tensor) -> Tensor:
    """Returns the number of spikes of each neuron.

    The plain form is :func:`~lightning_accum.functional.statistics.spike_counts`.

    Args:
        spikes: activity ``[T, B, ...]``.

    Example:
        >>> import torch
        >>> fast_spike_counts(torch.tensor([[[True, False]], [[True, False]]]))
        tensor([2., 0.])
    """
    counts = count_neurons(spikes)
    return spike_counts(spikes) if counts is None else counts


def fast_count_statistics(counts: Tensor, slots: int) -> Mapping[str, Tensor | float]:
    """Returns the mean rate of neurons, and the share of those that are silent.

    The plain form is
    :func:`~lightning_accum.functional.statistics.count_statistics`, which has
    these arguments. The kernel's sums are numbers.
    """
    sums, size = sum_counts(counts), counts.numel()
    if sums is None or not size:
        return count_statistics(counts, slots)
    total, silent = sums
    return {"firing_rate": total / (max(slots, 1) * size), "silent_share": silent / size}
