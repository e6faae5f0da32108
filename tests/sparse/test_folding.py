"""The signal of e-prop is folded where it is summed, and equals one that is folded first."""

import pytest
import torch
from compiled import needs_kernel, numbers, spikes
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lightning_accum import Cell, EProp, get_updater
from lightning_accum.engine import accumulate as run_module
from lightning_accum.engine import forms
from lightning_accum.functional import ArcTan, FastSigmoid, Triangular, reverse_trace
from lightning_accum.functional.eligibility import Eligibility, fold_eligibility
from lightning_accum.nn import Linear, SurrogateLIF
from lightning_accum.rules import Feedback, SymmetricFeedback, _eligibility
from lightning_accum.sparse import eligibility
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.eligibility import MOST_CLASSES, Folding, Potential
from lightning_accum.sparse.event_sums import Rows, outer_sum_into
from lightning_accum.sparse.events import Events

quick = settings(derandomize=True, max_examples=30)
decays = st.sampled_from([0.0, 0.7, 0.95, 1.0])
T, B = 9, 3


def folding(width=6, classes=2, dtype=torch.float64):
    errors, feedback = numbers(T, B, classes, seed=0, dtype=dtype), numbers(classes, width, seed=1)
    potential = Potential(numbers(T, B, width, seed=2, dtype=dtype), 0.25, Triangular(0.4, 0.8))
    return Folding(lambda: errors, errors, feedback.to(dtype), potential, (0.9, 0.3, 0.8))


@needs_kernel
@pytest.mark.parametrize("surrogate", [Triangular(0.4, 0.8), FastSigmoid(3.0), ArcTan(1.5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@quick
@given(
    seed=st.integers(0, 99), width=st.sampled_from([1, 7, 32, 70]), kappa=decays, rho=decays,
    beta=st.sampled_from([0.0, 0.3]), decay=decays, classes=st.sampled_from([1, 3, MOST_CLASSES]),
    moves=st.booleans(), regularized=st.booleans(), lasting=st.booleans(), goes_on=st.booleans(),
    onto=st.booleans(), by_event=st.booleans(),
)  # fmt: skip
def test_a_sum_folds_on_the_way(
    surrogate, dtype, seed, width, kappa, rho,
    beta, decay, classes, moves, regularized, lasting,
    goes_on, onto, by_event
):  # fmt: skip
    def make(*shape, plus):
        return numbers(*shape, seed=seed + plus, dtype=dtype)

    errors, feedback = (
        make(*([] if lasting else [T]), B, classes, plus=0),
        make(classes, width, plus=1),
    )
    potential = Potential(
        make(T, B, width, plus=2), make(T, B, width, plus=3) if moves else 0.25, surrogate
    )
    unfiltered = make(width, plus=4) if regularized else None
    behind = (make(B, width, plus=5), make(B, width, plus=6)) if goes_on else None
    signal = (errors @ feedback).expand(T, B, width)
    following = None if behind is None else Eligibility(signal, *behind)
    q = fold_eligibility(
        signal, potential.derivative(), kappa, beta, rho, unfiltered, following=following
    ).post
    rows = reverse_trace(q, decay)
    raster = spikes(T * B, 5, seed=seed)
    total = torch.ones((5, width) if by_event else (width, 5), dtype=dtype)
    product = 0.5 * raster.T.to(dtype) @ rows.flatten(0, 1)
    expected = (product if by_event else product.T) + (total if onto else 0)
    last = torch.empty(B, width, dtype=dtype)
    found = Folding(lambda: q, errors, feedback, potential, (kappa, beta, rho), unfiltered, behind)
    source = Rows(potential.membrane, "reverse", decay, last=last, folding=found)
    assert found.suits_kernel()
    assert outer_sum_into(total, onto, Events(raster), [(0.5, source)], by_event=by_event)
    tolerance = (
        {"rtol": 1e-4, "atol": 1e-3} if dtype == torch.float32 else {"rtol": 0, "atol": 1e-11}
    )
    torch.testing.assert_close(total, expected, **tolerance)
    torch.testing.assert_close(last, rows[0], **tolerance)


@needs_kernel
def test_rows_that_the_kernel_does_not_fold_are_left_to_torch():
    good, raster = folding(), Events(spikes(T * B, 5, seed=0))
    total = torch.full((6, 5), torch.nan, dtype=torch.float64)
    rows = Rows(good.potential.membrane, "reverse", 0.5, folding=good)
    refused = [
        rows._replace(trace="cumulative"),
        rows._replace(before=good.potential.membrane[0]),
        rows._replace(weights=good.potential.membrane[..., 0].contiguous()),
        rows._replace(folding=good._replace(errors=good.errors[1:])),
    ]
    for each in refused:
        assert not outer_sum_into(total, False, raster, [(1.0, each)])
    assert total.isnan().all()
    assert outer_sum_into(total, False, raster, [(1.0, rows)])
    assert not total.isnan().any()


class Doubled(Feedback):
    """Feedback that is more than a product with weights."""

    def __init__(self, readout):
        super().__init__()
        self.weight = readout.weight.detach()

    def matrix(self):
        return self.weight

    def forward(self, error):
        return 2 * super().forward(error)


def changes(beta, feedback, carry=False, steps=40, calls=1):
    """The changes that e-prop makes of the input's and the recurrent weights."""
    torch.manual_seed(0)
    fc, readout = Linear(30, 50, bias=False), nn.Linear(50, 3)
    lif = SurrogateLIF(50, 8.0, beta=beta, recurrent=True, time_dim=0, spike_dtype=torch.bool)
    nn.init.normal_(fc.weight, 0.0, 0.4)
    modules = [each.double() for each in (fc, lif, readout)]
    rule = EProp(
        0.1,
        feedback(readout),
        tc_readout=6.0,
        regularization=0.3,
        time_dim=0,
        carry=carry,
        backend="auto",
    )
    rule.register_cell("input", Cell(fc, lif))
    rule.register_cell("recurrent", Cell(lif.recurrent, lif))
    x, errors = spikes(steps, 2, 30, seed=1), numbers(steps, 2, 3, seed=2)
    with torch.no_grad():
        for part, error in zip(x.chunk(calls), errors.chunk(calls), strict=True):
            modules[1](modules[0](part))
            rule(error=error)
    found = [get_updater(each).weight for each in (fc, lif.recurrent)]
    return [_net(each) for each in found]


def _net(pending):
    parts = [torch.zeros(()) if part is None else part for part in (pending.pos, pending.neg)]
    return parts[0] - parts[1]


@pytest.mark.parametrize("beta", [0.0, 0.3])
@pytest.mark.parametrize(
    ("feedback", "carry", "calls"),
    [(SymmetricFeedback, False, 1), (Doubled, False, 1), (SymmetricFeedback, True, 2)],
)
@pytest.mark.parametrize("elements", [1 << 30, 900])
def test_a_rule_folds_on_the_way(
    monkeypatch, beta, feedback, carry, calls,
    elements
):  # fmt: skip
    with monkeypatch.context() as patch:
        patch.setenv(library.SWITCH, "0")
        patch.setattr(library, "_failures", {})
        library.library.cache_clear()
        expected = changes(beta, feedback, carry, calls=calls)
    library.library.cache_clear()
    monkeypatch.setattr(forms, "_FEWEST_ROWS", 0)
    monkeypatch.setattr(forms, "_SMALL", 0)
    monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", elements)
    monkeypatch.setattr(eligibility, "_BLOCK", 300)
    compiles = library.has_kernel(torch.device("cpu"), torch.float64)
    if compiles and calls == 1 and feedback is SymmetricFeedback:
        monkeypatch.setattr(_eligibility, "fold_in_blocks", None)  # no memory for the signal
    found = changes(beta, feedback, carry, calls=calls)
    assert all(each.abs().max() > 1e-3 for each in expected)
    for ours, plain in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, plain, rtol=0.0, atol=1e-12)
