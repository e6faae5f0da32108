"""Counts of spikes are those of plain torch."""

import pytest
import torch
from turns import turns

from lightning_accum.sparse.events import count_spikes

VALUES = [0.5, 2.0, -1.0, 1e-9, torch.inf, -torch.inf, torch.nan]


@pytest.fixture(params=["kernel", "torch"])
def way(request, monkeypatch):
    """Counts in the kernel, and without it."""
    if request.param == "torch":
        monkeypatch.setattr("lightning_accum.sparse.events.count_ones", lambda _: None)


def plain(activity):
    binary = (activity == 0) | (activity == 1)
    return int(activity.sum()) if binary.all() else None


@pytest.mark.usefixtures("way")
@turns("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
@turns("size", [0, 1, 7, (1 << 16) + 3])
def test_counts_as_the_plain_form(dtype, size):
    activity = (torch.rand(size, generator=torch.Generator().manual_seed(0)) < 0.3).to(dtype)
    assert count_spikes(activity) == plain(activity.double())
    assert count_spikes(activity.reshape(1, -1, 1)) == plain(activity.double())


@pytest.mark.usefixtures("way")
@turns("value", VALUES)
@turns("at", [0, -1])
def test_finds_any_other_value(value, at):
    activity = torch.ones((1 << 16) + 3, dtype=torch.float64)
    activity[at] = value
    assert count_spikes(activity) is plain(activity) is None


@pytest.mark.usefixtures("way")
def test_other_values_with_the_sum_of_spikes():
    for values in ([2.0, 0.5, 0.5], [3.0, -1.0], [(1 + 7**0.5) / 2, (1 - 7**0.5) / 2]):
        assert count_spikes(torch.tensor(values)) is None
