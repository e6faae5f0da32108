"""The optimizers in all their options, and runs of them on a small load."""

import functools

import pytest
import torch

from lightning_accum import optim

# A vector, a matrix, an image kernel in channels_last, a scalar, and one that is cut in pieces
# where the chunks are small.
SHAPES = ((7,), (3, 5), (2, 3, 4, 4), (), (300,))


class OneAtATime(optim.GenericAdaptiveOptimizer):
    """What a user writes: momentum by `step_param` alone, with a count and a decay."""

    def __init__(self, params, lr=1e-3, beta=0.9, **defaults):
        super().__init__(params, defaults, lr, (beta, 0.0), 0.0)

    def init_state(self, state, group, param):
        state["step"] = 0
        state["mean"] = torch.zeros_like(param)

    def step_param(self, state, group, grad, param):
        state["step"] += 1
        grad = self.weight_decay(param, grad, group)
        state["mean"].lerp_(grad, 1 - group["betas"][0])
        param.sub_(group["lr"] * state["mean"])


CASES = {
    "adam": functools.partial(optim.Adam, lr=0.01),
    "adamw": functools.partial(optim.Adam, lr=0.01, weight_decay=0.1),
    "adam-optimized": functools.partial(optim.Adam, lr=0.01, optimized_update=True),
    "amsgrad": functools.partial(optim.AMSGrad, lr=0.01),
    "warmup": functools.partial(optim.AdamWarmup, lr=0.01, warmup=7),
    "warmup-amsgrad": functools.partial(optim.AdamWarmup, lr=0.01, warmup=7, amsgrad=True),
    "noam": functools.partial(optim.Noam, lr=0.5, warmup=7, d_model=16),
    "cosine": functools.partial(optim.AdamWarmupCosineDecay, lr=0.01, warmup=3, total_steps=20),
    "radam": functools.partial(optim.RAdam, lr=0.01),
    "radam-still": functools.partial(optim.RAdam, lr=0.01, degenerate_to_sgd=False),
    "adabelief": functools.partial(optim.AdaBelief, lr=0.01),
    "adabelief-amsgrad": functools.partial(optim.AdaBelief, lr=0.01, eps=1e-8, amsgrad=True),
    "adabelief-rectified": functools.partial(optim.AdaBelief, lr=0.01, rectify=True),
    "one-at-a-time": functools.partial(OneAtATime, lr=0.01),
}
ADAM = [name for name in CASES if name.startswith(("adam", "amsgrad", "warmup", "noam", "cosine"))]
OWN = [name for name in CASES if name != "one-at-a-time"]


def parameters(dtype=torch.float64, seed=0, shapes=SHAPES):
    generator = torch.Generator().manual_seed(seed)
    values = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    values = [
        v.to(memory_format=torch.channels_last) if v.dim() == 4 else v for v in values
    ]  # fmt: skip
    return [torch.nn.Parameter(v.to(dtype)) for v in values]


def give_gradients(params, step, absent=()):
    """The gradients of a step: a slope towards a minimum, noise, and scales far apart."""
    generator = torch.Generator().manual_seed(1000 + step)
    for i, param in enumerate(params):
        noise = torch.randn(param.shape, generator=generator, dtype=torch.float64)
        slope = (param.detach().double() - 0.3 + noise) * 10.0 ** (i - 2)
        param.grad = None if i in absent else torch.empty_like(param).copy_(slope)


def run(optimizer, params, steps=20, start=0, absent=lambda step: ()):
    """Steps; ``absent(step)`` names the parameters that have no gradient."""
    for step in range(start, start + steps):
        give_gradients(params, step, absent(step))
        optimizer.step()
    return [param.detach().clone() for param in params]


def close(left, right, tolerance=1e-12):
    for one, two in zip(left, right, strict=True):
        torch.testing.assert_close(one, two, rtol=tolerance, atol=tolerance)


def same(left, right):
    for one, two in zip(left, right, strict=True):
        assert torch.equal(one, two)


def assert_raises_as_stale(params, step):
    """A graph whose parameters are stepped before its backward pass."""
    losses = [(param * param).abs().sum() for param in params]
    for param in params:
        param.grad = torch.ones_like(param)
    step()
    for loss in losses:
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
