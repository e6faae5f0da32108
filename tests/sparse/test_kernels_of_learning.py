"""Loops of neurons and folds of eligibility, compiled or in blocks, equal their plain forms."""

from dataclasses import dataclass

import pytest
import torch
from compiled import numbers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightning_accum.functional import ArcTan, FastSigmoid, Surrogate, Triangular
from lightning_accum.functional.eligibility import fold_eligibility
from lightning_accum.nn import SurrogateLIF
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.eligibility import Potential, fold_in_blocks

quick = settings(derandomize=True, max_examples=25)
decays = st.sampled_from([0.0, 0.7, 0.95, 1.0])
betas = st.sampled_from([0.0, 0.3])


@pytest.fixture(params=["compiled", "plain"])
def either_form(request, monkeypatch):
    if request.param == "plain":
        monkeypatch.setenv(library.SWITCH, "0")
        monkeypatch.setattr(library, "_failures", {})
    library.library.cache_clear()
    yield
    monkeypatch.undo()
    library.library.cache_clear()


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
    signal, membrane, limits = (
        numbers(steps, 3, width, seed=seed + i, dtype=dtype) for i in range(3)
    )
    potential = Potential(membrane, limits if moves else 0.25, surrogate)
    unfiltered = numbers(width, seed=seed, dtype=dtype) if regularized else None
    psi = potential.derivative()
    expected = fold_eligibility(signal, psi, kappa, beta, rho, unfiltered)
    out = torch.full_like(signal, torch.nan)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lightning_accum.sparse.eligibility._BLOCK", block)
        found = fold_in_blocks(signal.__getitem__, potential, out, kappa, beta, rho, unfiltered)
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
