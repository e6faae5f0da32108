"""Carries the eligibility of e-prop from window to window."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum.engine.evaluate import per_sample
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.state import StateKey
from lightning_accum.engine.terms import CustomChange, Parts, Term, added
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.engine.window import Window
from lightning_accum.rules._folded import FoldedWindow


def owners(window: Window) -> Tensor | None:
    """Returns the neuron that each entry of a parameter leads to; ``None`` if that is its row."""
    vjp, dtype = window.vjp, torch.promote_types(window.param.dtype, torch.float32)
    if vjp.is_matrix or not vjp.reads_input:
        return None
    post, pre = (side.activity[0, :1] for side in (window.post, window.pre))

    def distinct(like: Tensor) -> Tensor:  # no sum of these is zero, or another number
        numbers = torch.arange(1, like.numel() + 1, device=like.device, dtype=torch.float64)
        return (0.5 + (numbers * 0.6180339887) % 1).to(dtype).reshape(like.shape)

    def summed(values: Tensor) -> Tensor:  # for each entry, over the neurons that it leads to
        return vjp.sum(values, distinct(pre), dtype)

    each = summed(torch.ones_like(post, dtype=dtype))
    order = torch.arange(post.numel(), dtype=dtype, device=post.device)
    used = each.where(each != 0, 1.0)
    found = (summed(order.reshape(post.shape)) / used).round().long()
    found = found.clamp(0, max(0, post.numel() - 1))
    expected = distinct(post).flatten()[found] * each
    if not torch.allclose(summed(distinct(post)), expected, rtol=1e-4):
        raise ValueError(
            "Argument `carry` should be False for a connection whose neurons share weights: the"
            f" eligibility of each does not fit the weight. Found `{window.name}` of shape"
            f" {list(window.param.shape)}, with weights that lead to several neurons: make the rule"
            " with `carry=False`, and call it once for each sequence."
        )
    return found


class CarriedEligibility(CustomChange):
    """Adds the change by the eligibility of earlier windows, and carries that of this window."""

    # Two tensors for each sample and synapse pass from window to window: the filtered eligibility
    # if the readout has a memory, and the adaptation's part if the neuron adapts.

    def __init__(self, window: Window, pre: Signal, folded: FoldedWindow, lr: float) -> None:
        super().__init__(window.post.activity.shape[1])
        self.window = window
        self.pre = pre
        self.folded = folded
        self.lr = lr
        self.keys = {
            "filtered": StateKey("sample", f"{window.name} filtered eligibility", folded.kappa),
            "adaptation": StateKey(
                "sample", f"{window.name} eligibility of adaptation", folded.beta
            ),
        }
        self.before = {name: window.left_for_samples(key) for name, key in self.keys.items()}
        nothing = all(value is None for value in self.before.values())
        self.rate = 0.0 if window.start > 0 or nothing else -lr
        self.owners = owners(window) if folded.carries or not nothing else None

    def parts(self, samples: slice, vjp: WeightVJP) -> Parts:
        """Returns the change as the depressing part: the rate of the rule's product is negative."""
        total: Tensor | None = None
        for name, value in self.before.items():
            if value is not None:
                factor = self._factor(getattr(self.folded.signal, name), value)
                total = added(total, (factor * value)[samples].sum(0))
        return None, None if total is None else total * self.lr

    def carry(self, vjp: WeightVJP) -> dict[StateKey, Tensor]:
        """Returns the eligibility of every sample and synapse at the window's end."""
        left, after = self.folded.remaining, {}
        wanted = {"filtered": self.folded.kappa != 0, "adaptation": self.folded.beta != 0}
        for name, key in self.keys.items():
            if not wanted[name]:
                continue
            end = getattr(left, name)
            term = Term(1.0, end.post[self.window.steps], self.pre)
            (total, _) = per_sample([term], vjp)
            assert total is not None
            # Each piece of a window adds its part of what is left at the window's end.
            if self.window.start == 0:
                for other, value in self.before.items():
                    if value is not None:
                        total = total + self._factor(getattr(end, other), value) * value
            elif (earlier := self.before[name]) is not None:
                total = total + earlier
            after[key] = total.expand(self.size, *self.window.param.shape)
        return after

    def _factor(self, factor: Tensor, value: Tensor) -> Tensor:
        """Returns a factor of each neuron in a shape that broadcasts over the neuron's synapses."""
        factor = factor.flatten(1).to(value)
        if self.owners is not None:
            return factor[:, self.owners]
        return factor.reshape(*factor.shape, *[1] * (value.ndim - 2))
