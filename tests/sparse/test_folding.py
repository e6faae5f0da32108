"""Loops of neurons and folds of eligibility, compiled, in blocks or summed on the way."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kernel_helpers import needs_kernel, numbers, spikes

from lightning_accum.functional import ArcTan, FastSigmoid, Surrogate, Triangular, reverse_trace
from lightning_accum.functional.eprop import Eligibility, fold_eligibility
from lightning_accum.nn import SurrogateLIF
from lightning_accum.sparse.eprop import MOST_CLASSES, Folding, Potential, fold_in_blocks
from lightning_accum.sparse.event_sums import Rows, outer_sum_into
from lightning_accum.sparse.events import Events

quick = settings(derandomize=True, max_examples=30)
decays = st.sampled_from([0.0, 0.7, 0.95, 1.0])
betas = st.sampled_from([0.0, 0.3])
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

    errors = make(*([] if lasting else [T]), B, classes, plus=0)
    feedback, membrane = make(classes, width, plus=1), make(T, B, width, plus=2)
    potential = Potential(membrane, make(T, B, width, plus=3) if moves else 0.25, surrogate)
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
    rtol, atol = (1e-4, 1e-3) if dtype == torch.float32 else (0.0, 1e-11)
    torch.testing.assert_close((total, last), (expected, rows[0]), rtol=rtol, atol=atol)


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


@dataclass(frozen=True)
class Own(Surrogate):
    """A surrogate that is not compiled."""

    def derivative(self, x):
        return torch.exp(-x.square())


def close(found, expected, dtype):
    tolerance = 1e-5 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("surrogate", [Triangular(0.4, 0.8), FastSigmoid(3.0), ArcTan(1.5), Own()])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@quick
@given(
    seed=st.integers(0, 99), steps=st.integers(1, 9), width=st.sampled_from([1, 7, 700]),
    kappa=decays, beta=betas, rho=decays, moves=st.booleans(), regularized=st.booleans(),
    block=st.sampled_from([1, 5000, 1 << 16]),
)  # fmt: skip
def test_a_fold_in_blocks_equals_that_of_the_whole_window(
    dtype, surrogate, seed, steps, width, kappa, beta, rho, moves, regularized, block
):
    shape = steps, 3, width
    signal, membrane, limits = (numbers(*shape, seed=seed + i, dtype=dtype) for i in range(3))
    potential = Potential(membrane, limits if moves else 0.25, surrogate)
    unfiltered = numbers(width, seed=seed, dtype=dtype) if regularized else None
    psi = potential.derivative()
    expected = fold_eligibility(signal, psi, kappa, beta, rho, unfiltered)
    out = torch.full_like(signal, torch.nan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightning_accum.sparse.eprop._BLOCK", block)
        constants = kappa, beta, rho
        found = fold_in_blocks(signal.__getitem__, potential, out, constants, unfiltered)
    assert found.post is out
    close(tuple(found), tuple(expected), dtype)


@pytest.mark.usefixtures("either_form")
@pytest.mark.parametrize("spike_dtype", [None, torch.bool])
@quick
@given(
    dtype=st.just(torch.float64), seed=st.integers(0, 99), batch=st.integers(1, 3),
    steps=st.sampled_from([1, 7, 8, 30]),
    size=st.sampled_from([1, 17, 64]), beta=betas, recurrent=st.booleans(),
)  # fmt: skip
@example(torch.float32, 0, 12, 2, 17, 0.3, True)
@example(torch.float32, 0, 12, 2, 17, 0.3, False)
@example(torch.float32, 0, 12, 2, 17, 0.0, False)
def test_the_loop_of_neurons_equals_their_steps(
    spike_dtype, dtype, seed, steps, batch, size, beta, recurrent
):
    torch.manual_seed(seed)
    neurons = SurrogateLIF(
        size, 5.0, beta=beta, recurrent=recurrent, time_dim=0, spike_dtype=spike_dtype
    ).to(dtype)
    current = numbers(steps, batch, size, seed=seed, dtype=dtype)
    state = neurons._load(current[0])
    for _ in range(2):  # the second call begins where the first ended
        with torch.no_grad():
            expected = neurons._integrate(current, state)
        spikes = neurons(current)
        assert spikes.dtype == (spike_dtype or dtype)
        assert torch.equal(spikes.to(dtype), expected.raster[1:])
        close(neurons.membrane, expected.membrane, dtype)
        close(neurons.threshold, expected.threshold, dtype)
        for name, value in expected.state._asdict().items():
            close(neurons._state[name], value, dtype)
        state = expected.state
    assert spikes.any() or steps * batch * size < 100


def test_signals_that_do_not_fit_are_rejected():
    signal = torch.rand(6, 2, 3)
    for psi, words in ((signal[:5], "one shape"), (torch.rand(()), "at least one step")):
        with pytest.raises((TypeError, ValueError), match=words):
            fold_eligibility(signal if psi.ndim else psi, psi)
