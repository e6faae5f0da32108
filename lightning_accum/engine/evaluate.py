r"""Evaluates the terms of a window in the plain form, which all rules share.

Each term is a product of a postsynaptic and a presynaptic signal, summed over time for each sample,

.. math:: \Delta_k[b] = |\text{rate}_k| \; L_k\left(\sum_t \mathrm{post}_k[t, b] \otimes
          \mathrm{pre}_k[t, b]\right),

and belongs to the potentiating part if its rate is positive, to the depressing part otherwise. The
batch reduction then reduces the changes of all samples to one, for each part separately.

:mod:`lightning_accum.engine.product_sums` computes sums and means in a few products for all
samples, and :mod:`lightning_accum.engine.window_changes` chooses between the two.
"""

from collections.abc import Sequence

import torch

from lightning_accum.engine.term_operands import Computed
from lightning_accum.engine.terms import Parts, added
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.reductions import Reduction
from lightning_accum.updates.pending import Pending


def evaluate(changes: Sequence[Computed], batch: Reduction, vjp: WeightVJP) -> Parts:
    """Returns both parts of the change that a window makes, reduced over the batch."""
    samples = Pending(how=batch)
    for sample in range(changes[0].size):
        samples.add(*change_of(changes, sample, vjp))
    return samples.parts()


def change_of(changes: Sequence[Computed], sample: int, vjp: WeightVJP) -> Parts:
    """Returns both parts of the change that one sample makes, in the parameter's shape."""
    pos = neg = None
    for change in changes:
        up, down = change.parts(slice(sample, sample + 1), vjp)
        pos, neg = added(pos, up), added(neg, down)
    return pos, neg


def per_sample(changes: Sequence[Computed], vjp: WeightVJP) -> Parts:
    """Returns both parts of every sample's change, ``[B, ...]``."""
    found = [change_of(changes, sample, vjp) for sample in range(changes[0].size)]
    pos, neg = ([part for part in side if part is not None] for side in zip(*found, strict=True))
    return torch.stack(pos) if pos else None, torch.stack(neg) if neg else None
