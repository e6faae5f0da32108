"""Pair STDP by hand, and what a stream of windows and samples is."""

import itertools
import math

import pytest
import torch
from clamped_layers import layer, learned, raster, show
from forced_summation import FORMS, in_forms
from rule_trainers import trainer_of

from lightning_accum import STDP, RuleTrainer
from lightning_accum.engine import window_changes as accumulate

A = math.exp(-1 / 20)  # what a trace of 20 ms keeps from one step to the next
WAYS = [*itertools.product(("cumulative", "nearest"), FORMS)]
exact = {"rtol": 1e-10, "atol": 1e-12}


def windows(rule, first, second, between=lambda rule: None, **call):
    """What the second of two windows changes, with something done between them."""
    model = layer(first[0].shape[-1], first[1].shape[-1])
    rule.register_cell("cell", model.cell)
    show(model, *first)
    rule(**call)
    model.cell.updater.clear()
    between(rule)
    show(model, *second)
    rule()
    delta = model.cell.updater.weight.update(model.connection.weight)
    rule.del_cell("cell")
    return delta


@pytest.mark.parametrize(("mode", "backend"), WAYS)
@in_forms("backend")
def test_what_ends_a_stream(mode, backend):
    first = raster(5, 3, 4, seed=1), raster(5, 3, 2, seed=2)
    second = raster(5, 3, 4, seed=3), raster(5, 3, 2, seed=4)
    settings = {"trace_mode": mode, "backend": backend}
    rule, forgets = (trainer_of(STDP, 0.3, -0.2, **settings, carry=c) for c in (True, False))
    at_rest = learned(rule, *second)
    assert not torch.allclose(windows(rule, first, second), at_rest)
    for found in (
        windows(forgets, first, second),
        windows(rule, first, second, carry=False),
        windows(rule, first, second, between=lambda rule: rule.clear()),
    ):
        torch.testing.assert_close(found, at_rest, **exact)
    # A batch of another size is other samples: it begins at rest, and so does the next.
    smaller = second[0][:, :2], second[1][:, :2]
    found = windows(rule, first, smaller)
    torch.testing.assert_close(found, learned(rule, *smaller), **exact)
    torch.testing.assert_close(windows(rule, smaller, first), learned(rule, *first), **exact)


def paired(pre, post, pairing):
    """The pairs of one synapse that each side completes, found spike by spike."""
    up = down = 0.0
    for p in post:
        causal = [q for q in pre if q <= p and not any(q <= other < p for other in post)]
        causal = causal[-1:] if pairing == "reduced" else causal
        up += sum(A ** (p - q) for q in causal)
    for q in pre:
        before = [p for p in post if p <= q][-1:]
        if pairing == "reduced" and any(before[0] <= other < q for other in pre if before):
            before = []
        down += sum(A ** (q - p) for p in before)
    return up, down


@pytest.mark.parametrize(
    ("cut", "elements"), [((12,), 1 << 23), ((12,), 99), ((1,) * 12, 1), ((5, 4, 3), 99)]
)
@pytest.mark.parametrize("pairing", ["presynaptic", "reduced"])
def test_pairs_of_other_schemes_spike_by_spike(pairing, cut, elements, monkeypatch):
    monkeypatch.setattr(accumulate, "_PIECE_ELEMENTS", elements)
    pre, post = raster(12, 3, 5, density=0.3, seed=1), raster(12, 3, 4, density=0.3, seed=2)
    expected = torch.empty(2, 3, 4, 5, dtype=torch.float64)
    for b, j, i in itertools.product(range(3), range(4), range(5)):
        sides = (side.nonzero().flatten().tolist() for side in (pre[:, b, i], post[:, b, j]))
        expected[:, b, j, i] = torch.tensor(paired(*sides, pairing), dtype=torch.float64)
    for lr_post, backend, (name, reduce) in itertools.product(
        (0.3, -0.3), ["auto", "plain"], [("sum", torch.sum), (torch.amax, torch.amax)]
    ):
        if len(cut) > 1 and name != "sum":
            continue
        model = layer(5, 4)
        rule = RuleTrainer(
            STDP(lr_post, -0.2, trace_mode="nearest", pairing=pairing),
            batch_reduction=name, backend=backend, carry=len(cut) > 1,
        )  # fmt: skip
        found = rule.register_cell("cell", model.cell).cell.updater.weight
        for x, y in zip(pre.split(cut), post.split(cut), strict=True):
            show(model, x, y)
            rule()
        up, down = 0.3 * expected[0], 0.2 * expected[1]
        parts = (reduce(up, 0), reduce(down, 0)) if lr_post > 0 else (None, reduce(up + down, 0))
        for part, other in zip((found.pos, found.neg), parts, strict=True):
            assert (part is None) == (other is None)
            if part is not None:
                torch.testing.assert_close(part, other, **exact)
