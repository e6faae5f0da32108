"""Counts of spikes are those of plain torch."""

import pytest
import torch
from compiled import spikes
from turns import turns

from lightning_accum.functional.update_statistics import count_statistics, spike_counts
from lightning_accum.sparse.search import count_spikes, fast_count_statistics, fast_spike_counts

SHAPES = [
    *[(1, 1, 1), (3, 2, 5), (16, 16, 255), (15, 17, 256), (2, 128, 257), (300, 1, 3)],
    *[(511, 2, 600), (4, 3, 2, 3, 5), (0, 2, 3), (2, 0, 3), (2, 3, 0)],
]


@turns("shape", SHAPES)
@turns("density", [0.0, 0.02, 0.3, 1.1])
def test_counts_and_their_statistics_are_those_of_plain_torch(shape, density):
    raster = spikes(*shape, density=density)
    counts = fast_spike_counts(raster)
    assert torch.equal(counts, spike_counts(raster))
    slots = shape[0] * shape[1]
    found, plain = fast_count_statistics(counts, slots), count_statistics(counts, slots)
    assert found.keys() == plain.keys()
    for name, value in plain.items():
        torch.testing.assert_close(torch.as_tensor(found[name]), value, equal_nan=True)


def test_what_has_no_kernel_is_left_to_plain_torch():
    raster = spikes(6, 4, 8)
    for each in (raster.float(), raster.transpose(0, 1), raster[:, :, ::2], raster.to(torch.int8)):
        assert torch.equal(fast_spike_counts(each), spike_counts(each))
    counts = spike_counts(raster)
    for each in (counts.double(), counts[::2], counts.long()):
        found, plain = fast_count_statistics(each, 24), count_statistics(each, 24)
        torch.testing.assert_close(dict(found), plain)
    with pytest.raises(ValueError, match="at least one neuron dimension"):
        fast_spike_counts(raster[0])


VALUES = [0.5, 2.0, -1.0, 1e-9, torch.inf, -torch.inf, torch.nan]


@pytest.fixture(params=["kernel", "torch"])
def way(request, monkeypatch):
    """Counts in the kernel, and without it."""
    if request.param == "torch":
        monkeypatch.setattr("lightning_accum.sparse.search.count_ones", lambda _: None)


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
