"""Modules that are fed with rasters."""

import torch
from torch import nn

from lightning_accum import Serial


class Fed(nn.Module):
    """A neuron that gives out what it was fed, whatever comes in."""

    def __init__(self):
        super().__init__()
        self.food = []

    def forward(self, x):
        return self.food.pop(0)


def raster(*shape, density=0.5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(shape, generator=generator) < density).double()


def layer(inputs, outputs, dtype=torch.float64):
    return Serial(nn.Linear(inputs, outputs, dtype=dtype), Fed())


def show(model, pre, post, time_dim=None):
    """Runs a model over a window ``[T, B, ..., in]`` and ``[T, B, ..., out]``."""
    dtype = model.connection.weight.dtype
    for x, y in [(pre, post)] if time_dim == 0 else zip(pre, post, strict=True):
        model.neuron.food.append(y.to(dtype))
        model(x.to(dtype))


def learned(rule, pre, post, dtype=torch.float64):
    """What a rule has changed the weights by, after one window from rest."""
    model = layer(pre.shape[-1], post.shape[-1], dtype)
    rule.register_cell("cell", model.cell)
    show(model, pre, post)
    rule()
    delta = model.cell.updater.weight.update(model.connection.weight)
    rule.del_cell("cell")
    return delta
