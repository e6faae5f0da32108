"""Hebb's rule on real-valued activity, by a plain sum of outer products."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lightning_accum import Cell, Hebb, Normalize, attach_updater


@pytest.mark.parametrize("lr", [0.5, -0.5])
@pytest.mark.parametrize("reduce", ["mean", "sum", "amax"])
def test_the_sum_of_products(lr: float, reduce: str):
    fc, act = nn.Linear(3, 2).double(), nn.Tanh()
    rule = Hebb(lr, batch_reduction=reduce)
    rule.register_cell("enc", Cell(fc, act))
    x = torch.randn(5, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    products = 0.0
    for step in x:
        products = products + torch.einsum("bo,bi->boi", act(fc(step)), step)
    rule()
    part = attach_updater(fc).weight
    found, none = (part.pos, part.neg) if lr > 0 else (part.neg, part.pos)
    assert torch.allclose(found, getattr(torch, reduce)(abs(lr) * products.detach(), 0))
    assert none is None


def test_with_a_norm_it_finds_the_first_principal_component():
    generator = torch.Generator().manual_seed(0)
    axes = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=generator))[0]
    spread = torch.tensor([3.0, 1.0, 0.5, 0.3, 0.1], dtype=torch.float64)
    data = torch.randn(4000, 5, dtype=torch.float64, generator=generator) * spread @ axes.T
    fc = nn.Linear(5, 1, bias=False).double()
    rule = Hebb(0.05)
    rule.register_cell("pc", Cell(fc, fc))
    attach_updater(fc).register_constraint(Normalize(1.0, order=2))
    for batch in data.split(100):
        fc(batch)
        rule()
        rule.update()
    leading = torch.linalg.svd(data, full_matrices=False)[2][0]
    assert torch.dot(fc.weight.detach()[0], leading).abs() > 0.999
