"""Chooses how the changes of a window are evaluated, and accumulates them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, TypeAlias

import torch

from lightning_accum.engine.evaluate import evaluate
from lightning_accum.engine.terms import Change, Term
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.numbers import is_narrowed
from lightning_accum.functional.reductions import Reduction
from lightning_accum.sparse.costs import Choice, alike, cheapest, unmoved_side
from lightning_accum.sparse.fold import add_linear, add_matrix
from lightning_accum.sparse.per_sample import add_per_sample
from lightning_accum.sparse.step import add_step
from lightning_accum.updates.accumulator import Accumulator

Backend: TypeAlias = Literal["auto", "plain", "dense", "pre", "post"]
"""How a rule's terms are evaluated.

``"plain"`` is the equation, sample by sample; ``"dense"`` folds time into matrix products;
``"pre"`` and ``"post"`` visit the spikes of one side; ``"auto"`` takes the cheapest of these three.
"""


def accumulate_terms(
    accumulator: Accumulator,
    changes: Sequence[Change],
    batch: Reduction,
    vjp: WeightVJP,
    backend: Backend = "auto",
) -> None:
    """Adds the changes of a window to an accumulator, as one contribution to each part.

    Args:
        accumulator: the accumulator of the parameter.
        changes: the rule's terms.
        batch: the reduction over the batch; sum and mean are fused, others reduce the change of
            every sample, in memory of bounded size.
        vjp: sums products of both sides into the parameter's shape.
        backend: how terms are evaluated.
    """
    for record in accumulator.records:
        accumulate_terms(record, changes, batch, vjp, backend)
    changes = [change for change in changes if change.rate != 0]
    if not changes:
        return
    products: list[Term] = []
    others: list[Change] = []
    for change in changes:
        product = change.as_product()
        if product is None:
            others.append(change)
        else:
            products.append(product)
    with torch.no_grad(), _in_full_precision(products[0].device if products else "cpu"):
        if backend == "plain" or not (batch.adds or (vjp.is_matrix and not others)):
            accumulator.accumulate(*evaluate(changes, batch, vjp))
        elif not batch.adds:
            add_per_sample(accumulator, products, batch)
        else:
            _add_sums(accumulator, products, others, batch.averages, vjp, backend)


def begin_contribution(accumulator: Accumulator, pieces: int) -> Accumulator:
    """Returns an accumulator for several additions that are to count as one contribution.

    Args:
        accumulator: receives the contribution from :func:`end_contribution`.
        pieces: how many additions there will be.
    """
    return accumulator if pieces <= 1 or accumulator.sums else Accumulator()


def end_contribution(accumulator: Accumulator, total: Accumulator) -> None:
    """Adds what was added to ``total`` since :func:`begin_contribution` returned it."""
    if total is not accumulator:
        accumulator.accumulate(total.pos, total.neg)


def _add_sums(
    accumulator: Accumulator,
    products: Sequence[Term],
    others: Sequence[Change],
    averages: bool,
    vjp: WeightVJP,
    backend: Backend,
) -> None:
    """Adds sums or means over the batch."""
    combine = accumulator.combines and len({product.rate < 0 for product in products}) > 1
    groups = _groups(products, backend, vjp, combine)
    total = begin_contribution(accumulator, len(groups) + len(others))
    for choice, some in groups:
        scale = 1.0 / some[0].size if averages else 1.0
        if choice == "step":
            add_step(total, some, scale)
            continue
        side = unmoved_side(some, combine) if choice == "dense" else choice
        if vjp.is_matrix:
            add_matrix(total, some, scale, side, choice != "dense", combine)
        else:
            add_linear(total, some, scale, side, vjp, combine)
        if combine:
            total.note_combined()
    for change in others:
        parts = change.summed(vjp)
        size = change.size if averages else 1
        total.accumulate(*(part if part is None else part / size for part in parts))
    end_contribution(accumulator, total)


def _groups(
    products: Sequence[Term], backend: Backend, vjp: WeightVJP, combine: bool = False
) -> list[tuple[Choice, Sequence[Term]]]:
    """Returns groups of products that are evaluated together, each with its form of evaluation."""
    if not products:
        return []
    if not vjp.is_matrix:
        return [("dense", products)]
    if backend != "auto":
        assert backend != "plain"
        return [(backend, products)]
    if products[0].operands[0].shape[0] == 1:
        return [("step", products)]
    return [(cheapest(some, combine), some) for some in alike(products)]


def _in_full_precision(device: str) -> AbstractContextManager[object]:
    """Suspends the autocast of a mixed-precision step."""
    return torch.autocast(device, enabled=False) if is_narrowed(device) else nullcontext()
