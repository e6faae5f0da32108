"""Modules that are fed with rasters, and pair STDP one spike at a time."""

import math

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


def naive(pre, post, lr_post, lr_pre, tc_post, tc_pre, mode, reduce, dt=1.0):
    """Both parts of the change of a weight, synapse by synapse and step by step."""
    steps, batch, inputs, outputs = *pre.shape[:2], pre.shape[-1], post.shape[-1]
    spikes = pre.reshape(steps, batch, -1, inputs).tolist()
    answers = post.reshape(steps, batch, -1, outputs).tolist()
    a_pre, a_post = math.exp(-dt / tc_pre), math.exp(-dt / tc_post)
    parts = {negative: torch.zeros(batch, outputs, inputs).double() for negative in (False, True)}
    for b in range(batch):
        for m in range(len(spikes[0][b])):
            for o in range(outputs):
                for i in range(inputs):
                    x = y = 0.0
                    up = down = 0.0
                    for t in range(steps):
                        s, r = spikes[t][b][m][i], answers[t][b][m][o]
                        x = s if mode == "nearest" and s else a_pre * x + s
                        y = r if mode == "nearest" and r else a_post * y + r
                        up += r * x
                        down += s * y
                    parts[lr_post < 0][b, o, i] += abs(lr_post) * up
                    parts[lr_pre < 0][b, o, i] += abs(lr_pre) * down
    in_use = {rate < 0 for rate in (lr_post, lr_pre) if rate}
    pos, neg = (reduce(parts[p], 0) if p in in_use else None for p in (False, True))
    return pos, neg
