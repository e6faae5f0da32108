"""A summary adds up the same, however many updates there are and whoever has summed them."""

from __future__ import annotations

import math

import pytest
import torch

from lightning_accum import Accumulator
from lightning_accum.callbacks._report import Before
from lightning_accum.callbacks._summary import Summary
from lightning_accum.functional.statistics import update_statistics


@pytest.mark.parametrize("kernel", ["always", "never", "sometimes"])
@pytest.mark.parametrize("updates", [1, 63, 64, 65, 150])
def test_the_mean_ratio_of_many_updates(kernel: str, updates: int) -> None:
    torch.manual_seed(0)
    summary, ratios = Summary(), []
    for i in range(updates):
        weight = torch.zeros(4, 5) if i % 7 == 3 else torch.rand(4, 5)
        pos = torch.rand(4, 5)
        before = Before("enc", "weight", weight, weight, (pos, None), (0.0, 1.0))
        plain = update_statistics(weight, weight + pos, pos, None, 0.0, 1.0)
        by_kernel = kernel == "always" or (kernel == "sometimes" and i % 2)
        values = before.values(weight + pos) if by_kernel else plain
        lr = 0.0 if i % 5 == 2 else 1.0
        summary.applied(before, weight + pos, {**values, "lr": lr})
        ratios.append(float(plain["ratio"]))
    finite = [ratio for ratio in ratios if math.isfinite(ratio)]
    table = summary.lines({("enc", "weight"): updates}, [])[2].split()
    assert table[:3] == ["enc", "weight", str(updates)]
    assert float(table[3]) == pytest.approx(sum(finite) / len(finite), rel=0.06)  # two digits
    assert table[4] == "0%"
    advice = list(summary.one_sided({"enc"}, {("enc", "weight"): updates}))
    assert len(advice) == (updates >= 3)
    assert all(f"the {updates} updates that were measured, of {updates}" in line for line in advice)


def test_known_parts_are_those_that_are_read_and_are_not_copied() -> None:
    accumulator = Accumulator(torch.Size([3]))
    assert accumulator.known_parts() == (None, None)
    accumulator.pos = torch.ones(3)
    pos, neg = accumulator.known_parts()
    again, _ = accumulator.known_parts()
    assert neg is None
    assert pos is not None
    assert again is not None
    assert torch.equal(pos, torch.ones(3))
    assert pos.data_ptr() == again.data_ptr()


@pytest.mark.parametrize(("began", "swings"), [(1e-3, False), (1e-3, True), (1.0, True)])
def test_weights_that_only_began_near_zero_are_not_said_to_change_too_fast(
    began: float, swings: bool
) -> None:
    summary, weight = Summary(), torch.full((4,), began)
    for i in range(30):
        new = weight + (0.5 * (-1) ** i if swings else 0.02)
        before = Before("enc", "weight", weight, weight, (None, None), (None, None))
        summary.applied(before, new, {**update_statistics(weight, new), "lr": 1.0})
        weight = new
    lines = summary.lines({("enc", "weight"): 30}, ["lr"])
    assert float(lines[2].split()[3]) > 0.1
    assert ("An update changes `enc.weight`" in lines[-1]) == swings
