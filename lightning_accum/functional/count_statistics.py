"""Statistics of the numbers of spikes of neurons."""

from __future__ import annotations

from torch import Tensor


def count_statistics(counts: Tensor, slots: int) -> dict[str, Tensor]:
    """Returns the mean rate of neurons, and the share of those that are silent.

    Args:
        counts: ``[N]`` the number of spikes of each neuron.
        slots: the number of steps times samples in which they were counted.

    Returns:
        ``firing_rate``, in spikes per step of a sample, and ``silent_share``.

    Example:
        >>> import torch
        >>> count_statistics(torch.tensor([2.0, 0.0]), 4)
        {'firing_rate': tensor(0.2500), 'silent_share': tensor(0.5000)}
    """
    return {
        "firing_rate": (counts / max(slots, 1)).mean(),
        "silent_share": (counts == 0).float().mean(),
    }
