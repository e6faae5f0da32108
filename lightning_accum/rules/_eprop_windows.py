"""Folds e-prop's learning signals backwards in time, and carries eligibility between windows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightning_accum.engine.activity_window import Window
from lightning_accum.engine.evaluate import per_sample
from lightning_accum.engine.feedback import LearningSignal
from lightning_accum.engine.rule_inputs import Prepared, Recording
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.state_keys import StateKey
from lightning_accum.engine.term_operands import Activity, Product
from lightning_accum.engine.terms import Change, CustomChange, Parts, Term, added
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.eprop import Eligibility, Remaining, fold_remaining
from lightning_accum.rules.third_factor import PotentialRule, potential
from lightning_accum.sparse.eprop import Folding, fold_in_blocks, fold_to_edges


class FoldConstants(NamedTuple):
    """The numbers by which a window is folded."""

    kappa: float  # decay of the readout's filter per step
    beta: float  # strength of the adaptation
    rho: float  # decay of the adaptation per step
    regularization: float  # strength of that of firing rates
    target: float  # spikes per step at which the regularization changes nothing


class FoldedWindow(Prepared):
    """The folded learning signals of a window, and the values that they are computed from."""

    replaces_states = True

    def __init__(
        self,
        recording: Recording,
        rule: PotentialRule,
        numbers: FoldConstants,
        learning: LearningSignal,
        empty: Callable[..., Tensor] = torch.empty,
    ) -> None:
        membrane, constants = recording.activity("membrane"), numbers[:3]
        dtype = torch.promote_types(learning.error.dtype, membrane.dtype)
        of, unfiltered = potential(recording, rule), None
        if numbers.regularization:
            rates = recording.activity("post").to(dtype).mean((0, 1))
            unfiltered = (rates - numbers.target) * numbers.regularization

        def fold() -> Eligibility:
            out = empty(tuple(membrane.shape), dtype=dtype, device=membrane.device)
            return fold_in_blocks(learning.of, of, out, constants, unfiltered)

        self.fold, self.learning, self.potential, self.numbers = fold, learning, of, numbers
        self.carries = recording.carries  # whether eligibility passes to the next window
        self.edges: dict[int, tuple[Tensor, Tensor]] = {}  # what later pieces left
        self.folding: Folding | None = None  # what the compiled kernel computes as it sums
        weighted = learning.weighted()
        if weighted is not None:
            found = Folding(lambda: fold().post, *weighted, of, constants, unfiltered)
            self.folding = found if found.suits_kernel() else None
        if self.folding is None:
            _ = self.signal  # what fails should fail before any cell has changed

    @property
    def factors(self) -> dict[str, Any]:  # type: ignore[override]
        """By name, the pseudo-derivative, and the weights of the feedback."""
        feedback = self.learning.feedback
        weight = None if feedback is None else feedback.matrix()
        found: dict[str, Any] = {"pseudo-derivative": self.potential.derivative}
        return found if weight is None else {**found, "feedback": weight}

    @cached_property
    def signal(self) -> Eligibility:
        """The folded learning signals, in memory of one number for each neuron and step."""
        return self.fold()

    def post(self, window: Window) -> Signal | Tensor:
        """Returns the folded learning signals of a piece of the window."""
        steps, folding = window.steps, self.folding
        if folding is None or "signal" in vars(self):
            return self.signal.post[steps]
        lasting = self.learning.every_step
        piece = folding._replace(
            values=lambda: self.signal.post[steps],
            errors=folding.errors[steps] if lasting else folding.errors,
            potential=folding.potential.part(steps),
            behind=self._behind(steps) if steps.stop < window.total else None,
        )
        return Signal(Activity(piece))

    def _behind(self, steps: slice) -> tuple[Tensor, Tensor]:
        """Returns what the steps after a piece fold to; all pieces but the last are as long."""
        if steps.stop not in self.edges:
            assert self.folding is not None
            length, like = steps.stop - steps.start, self.folding.potential.membrane
            how = like, length, self.folding.constants, self.folding.unfiltered
            self.edges.update(fold_to_edges(self.learning.of, self.potential, *how))
        return self.edges[steps.stop]

    def terms(self, window: Window, pre: Signal, lr: float) -> list[Change]:
        """Returns the folded signals times a trace of the input, and what passes on."""
        product = Term(-lr, self.post(window), pre)
        passes = self.numbers.kappa or self.numbers.beta
        return [product, CarriedEligibility(window, pre, self, lr)] if passes else [product]

    @cached_property
    def remaining(self) -> Remaining:
        """The factors of eligibility at the window's end; computed only if it is carried."""
        return fold_remaining(self.potential.derivative(), *self.numbers[:3])


def owners(window: Window) -> Tensor | None:
    """Returns the neuron that each entry of a parameter leads to; ``None`` if that is its row."""
    vjp, dtype = window.vjp, torch.promote_types(window.param.dtype, torch.float32)
    alone = window.post.unit_dim == -1 and window.post.activity.ndim == 3
    if alone and (vjp.is_matrix or not vjp.reads_input):
        return None
    post, pre = (side.activity[0, :1] for side in (window.post, window.pre))

    def distinct(like: Tensor) -> Tensor:  # no sum of these is zero, or another number
        numbers = torch.arange(1, like.numel() + 1, device=like.device, dtype=torch.float64)
        return (0.5 + (numbers * 0.6180339887) % 1).to(dtype).reshape(like.shape)

    def summed(values: Tensor) -> Tensor:  # for each entry, over the neurons that it leads to
        found: Tensor = vjp.sum(values, distinct(pre), dtype)
        return found

    each = summed(torch.ones_like(post, dtype=dtype))
    order = torch.arange(post.numel(), dtype=dtype, device=post.device)
    used = each.where(each != 0, 1.0)
    found = (summed(order.reshape(post.shape)) / used).round().long()
    found = found.clamp(0, max(0, post.numel() - 1))
    expected = distinct(post).flatten()[found] * each
    if not torch.allclose(summed(distinct(post)), expected, rtol=1e-4):
        raise ValueError(
            "Argument `carry` should be False for a connection whose neurons share weights, such"
            " as a convolution: the eligibility of each does not fit the weight. Found"
            f" `carry = True` for `{window.name}` of shape {list(window.param.shape)}, with entries"
            " that lead to several neurons: make the trainer with `carry=False`, and call it for"
            " each sequence."
        )
    return found


class CarriedEligibility(CustomChange):
    """Adds the change by the eligibility of earlier windows, and carries that of this window."""

    # Two tensors for each sample and synapse pass from window to window: the filtered eligibility
    # if the readout has a memory, and the adaptation's part if the neuron adapts.

    def __init__(self, window: Window, pre: Signal, folded: FoldedWindow, lr: float) -> None:
        super().__init__(window.post.activity.shape[1])
        self.window, self.pre, self.folded, self.lr = window, pre, folded, lr
        (kappa, beta, *_), name = folded.numbers, window.name
        self.keys = {
            "filtered": StateKey("sample", f"{name} filtered eligibility", kappa),
            "adaptation": StateKey("sample", f"{name} eligibility of adaptation", beta),
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
        after = {}
        for name, key in self.keys.items():
            if not key.setting:  # the readout has no memory, or the neuron does not adapt
                continue
            end = getattr(self.folded.remaining, name)
            term = Term(1.0, end.post[self.window.steps], self.pre)
            (total, _) = per_sample([Product(term, self.window)], vjp)
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
