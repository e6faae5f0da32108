"""The work that every library is given: its sizes, constants and input, and what it must learn.

One layer of leaky integrate-and-fire neurons behind one plastic connection; pair STDP with traces
of all spikes on both sides, the mean over the batch. What makes the libraries differ on paper is
taken out: all neurons integrate ``v ← a v + W s`` with the same ``a``, and every trace decays by
the same factor in a step, also where a library has ``1 - 1/τ`` for ``exp(-1/τ)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn

DT, TC = 1.0, 20.0  # ms
DECAY = math.exp(-DT / TC)  # of traces and of membranes, in a step
LR_POST, LR_PRE = 1e-4, -5e-5
RATE = 0.018  # of the output, spikes a step

See = Callable[[Tensor], object]


class Load(NamedTuple):
    """A dense layer's work."""

    neurons: int
    steps: int
    density: float = 0.02  # of the input, spikes a step
    batch: int = 32
    inputs: int = 784

    @property
    def before(self) -> tuple[int, ...]:
        return (self.inputs,)

    @property
    def after(self) -> tuple[int, ...]:
        return (self.neurons,)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.neurons, self.inputs)

    def connection(self, layers: Any) -> nn.Module:
        """One of a library's, or of torch's own."""
        made: nn.Module = layers.Linear(self.inputs, self.neurons, bias=False)
        return made.requires_grad_(False)

    def outer(self, post: Tensor, pre: Tensor) -> Tensor:
        return post.T @ pre

    def __str__(self) -> str:
        return (
            f"{self.inputs} → {self.neurons}, batch {self.batch}, {self.steps} steps,"
            f" input at {self.density:.0%}"
        )


class ConvLoad(NamedTuple):
    """A convolution's work: square kernels, and as large a map as the input's."""

    channels: int
    filters: int
    steps: int
    batch: int
    size: int = 28
    kernel: int = 3
    density: float = 0.02

    @property
    def before(self) -> tuple[int, ...]:
        return (self.channels, self.size, self.size)

    @property
    def after(self) -> tuple[int, ...]:
        return (self.filters, self.size, self.size)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.filters, self.channels, self.kernel, self.kernel)

    def connection(self, layers: Any) -> nn.Module:
        """One of a library's, or of torch's own."""
        made: nn.Module = layers.Conv2d(
            self.channels, self.filters, self.kernel, padding=self.kernel // 2, bias=False
        )
        return made.requires_grad_(False)

    def outer(self, post: Tensor, pre: Tensor) -> Tensor:
        padding = self.kernel // 2
        return torch.nn.grad.conv2d_weight(pre, self.shape, post, padding=padding)

    def __str__(self) -> str:
        return (
            f"{self.channels} → {self.filters} channels, {self.kernel} × {self.kernel} on"
            f" {self.size} × {self.size}, batch {self.batch}, {self.steps} steps, input at"
            f" {self.density:.0%}"
        )


AnyLoad = Load | ConvLoad


class Contender(Protocol):
    """A network of one library, with its rule or without."""

    def feed(self, raster: Tensor) -> Tensor:
        """The input in the form that the library takes; not timed."""

    def run(self, spikes: Tensor, see: See) -> None:
        """A batch from rest, with its update where it learns; ``see`` is shown the output."""

    @property
    def weight(self) -> Tensor:
        """A view of the weights, ``[out, in, ...]``."""


Make = Callable[[AnyLoad, bool], Contender]


def ignore(_: Tensor) -> None:
    """For what nobody looks at."""


def raster(load: AnyLoad) -> Tensor:
    """Bernoulli input, boolean ``[T, B, *before]``."""
    generator = torch.Generator().manual_seed(0)
    return torch.rand(load.steps, load.batch, *load.before, generator=generator) < load.density


def weights(load: AnyLoad, scale: float = 0.1) -> Tensor:
    """Random weights; at one scale, neurons are driven alike by any input."""
    drawn = torch.rand(load.shape, generator=torch.Generator().manual_seed(1))
    return drawn * scale / (math.prod(load.shape[1:]) * load.density)


def answer(net: Contender, load: AnyLoad, spikes: Tensor) -> Tensor:
    """What the neurons give out for a batch, ``[T, B, *after]``."""
    seen: list[Tensor] = []
    net.run(spikes, seen.append)
    return torch.cat([one.detach().reshape(-1, load.batch, *load.after) for one in seen]).float()


def matched(net: Contender, load: AnyLoad) -> float:
    """The scale of the weights at which the output has ``RATE``."""
    low, high, spikes = 0.0, 1.0, net.feed(raster(load))
    for _ in range(12):
        scale = (low + high) / 2
        net.weight.copy_(weights(load, scale))
        rate = answer(net, load, spikes).mean().item()
        low, high = (scale, high) if rate < RATE else (low, scale)
    return scale


def pairs(load: AnyLoad, pre: Tensor, post: Tensor) -> Tensor:
    """The change of the weights by the definition, step by step in float64."""
    pre, post = pre.double(), post.double()
    x_pre, x_post = torch.zeros_like(pre[0]), torch.zeros_like(post[0])
    change = x_pre.new_zeros(load.shape)
    for before, after in zip(pre, post, strict=True):
        x_pre, x_post = DECAY * x_pre + before, DECAY * x_post + after
        change += LR_POST * load.outer(after, x_pre) + LR_PRE * load.outer(x_post, before)
    return change / load.batch
