"""Every kind of connection that a rule should train."""

import torch
from clamped_layers import raster
from torch import nn
from torch.nn.utils import prune

from lightning_accum.nn import SparseLinear


class Own(nn.Module):
    """A connection of one's own: a weight, and a function of the input and the weight."""

    def __init__(self, fn, *shape):
        super().__init__()
        self.fn, self.weight = fn, nn.Parameter(torch.rand(shape))

    def forward(self, x):
        return self.fn(x, self.weight)


class BlockSparse(nn.Module):
    """A matrix of which only some blocks exist."""

    def __init__(self):
        super().__init__()
        self.blocks = nn.Parameter(torch.rand(3, 2, 2))
        self.places = ((0, 0), (1, 1), (2, 0))

    def forward(self, x):
        inputs = x.unflatten(-1, (2, 2))
        out = x.new_zeros(*x.shape[:-1], 3, 2)
        for block, (row, column) in zip(self.blocks, self.places, strict=True):
            out = out.index_add(
                -2, torch.tensor([row]), (inputs[..., column, :] @ block.T).unsqueeze(-2)
            )
        return out.flatten(-2)


def masked():
    return prune.custom_from_mask(nn.Linear(4, 3), "weight", raster(3, 4, seed=9))


def sparse():
    return SparseLinear(4, 3, indices=raster(3, 4, seed=9).nonzero().T)


# kind: module, shape of its input, parameters
KINDS = {
    "linear": (lambda: nn.Linear(4, 3), (4,), ("weight", "bias")),
    "sparse": (sparse, (4,), ("weight", "bias")),
    "kernels of whole maps": (lambda: nn.Conv1d(2, 3, 4), (2, 4), ("weight", "bias")),
    "sparse, tokens": (sparse, (2, 4), ("weight", "bias")),
    "linear, tokens": (lambda: nn.Linear(4, 3), (2, 4), ("weight", "bias")),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1), (2, 7), ("weight", "bias")),
    "conv2d": (
        lambda: nn.Conv2d(2, 4, 2, padding=1, dilation=2, groups=2), (2, 5, 4), ("weight", "bias")
    ),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), (1, 3, 2, 3), ("weight", "bias")),
    "depthwise": (lambda: nn.Conv2d(3, 3, 2, groups=3), (3, 3, 3), ("weight",)),
    "conv2d, same": (lambda: nn.Conv2d(1, 2, 3, padding="same"), (1, 4, 4), ("weight", "bias")),
    "conv2d, circular": (
        lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), (1, 4, 4), ("weight",)
    ),
    "conv transposed": (lambda: nn.ConvTranspose2d(2, 3, 2, 2), (2, 2, 3), ("weight", "bias")),
    "masked": (masked, (4,), ("weight_orig",)),
    "block-sparse": (BlockSparse, (4,), ("blocks",)),
    "one to one": (lambda: Own(torch.mul, 4), (4,), ("weight",)),
    "the other way round": (lambda: Own(torch.matmul, 4, 4), (4,), ("weight",)),
}  # fmt: skip
