"""Loops of neurons and folds of eligibility, compiled or in blocks, equal their plain forms."""

import itertools
from dataclasses import dataclass

import pytest
import torch
from compiled import needs_kernel, numbers, threads
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lightning_accum.functional import ArcTan, FastSigmoid, Surrogate, Triangular
from lightning_accum.functional.eligibility import fold_eligibility
from lightning_accum.nn import SurrogateLIF
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse import neurons
from lightning_accum.sparse.eligibility import Potential, fold_in_blocks, fold_steps
from lightning_accum.sparse.neurons import integrate_surrogate_neurons

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


@needs_kernel
def test_a_fold_is_left_to_torch_where_memory_is_not_as_the_kernel_reads_it():
    signal, membrane = numbers(4, 2, 6, seed=0), numbers(4, 2, 6, seed=1)
    out, behind = torch.full_like(signal, torch.nan), signal.new_zeros(2, 2, 6).unbind(0)
    constants = (0.5, 0.1, 0.9)
    potential = Potential(membrane, 1.0, Triangular())
    refused = [
        (signal[:3], potential, out, None),
        (signal.float(), potential, out, None),
        (signal.transpose(1, 2), potential, out, None),
        (signal, potential._replace(membrane=membrane[..., :5]), out, None),
        (signal, potential._replace(threshold=membrane[0]), out, None),
        (signal, potential._replace(surrogate=Own()), out, None),
        (signal, potential, out, signal[0, 0]),
    ]
    for signals, of, to, unfiltered in refused:
        assert not fold_steps(signals, of, to, behind, constants, unfiltered)
    assert out.isnan().all()
    assert not behind[0].any()
    assert fold_steps(signal, potential, out, behind, constants)
    assert not out.isnan().any()


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


@needs_kernel
def test_the_loop_is_left_to_torch_where_memory_is_not_as_the_kernel_reads_it(monkeypatch):
    current = numbers(9, 2, 6, seed=0)
    state = tuple(current.new_zeros(2, 6) for _ in range(3))
    membrane, raster = torch.full_like(current, torch.nan), torch.zeros(10, 2, 6).bool()
    weights, constants = numbers(6, 6, seed=1), (0.9, 1.0, 0.0, 0.9)
    refused = [
        (current, weights[:5], state, membrane, None, raster),
        (current, weights.t(), state, membrane, None, raster),
        (current, weights.float(), state, membrane, None, raster),
        (current, weights, (state[0][:1], *state[1:]), membrane, None, raster),
        (current, weights, state, membrane[:8], None, raster),
        (current, weights, state, membrane, membrane[:8], raster),
        (current, weights, state, membrane, None, raster[1:]),
        (current, weights, state, membrane, None, raster.int()),
        (current[0], None, state, membrane, None, raster),
    ]
    for arguments in refused:
        assert not integrate_surrogate_neurons(*arguments, constants)
    with monkeypatch.context() as patch:
        patch.setattr(neurons, "_WEIGHTS", weights.nbytes - 1)
        assert not integrate_surrogate_neurons(
            current, weights, state, membrane, None, raster, constants
        )
    assert membrane.isnan().all()
    assert integrate_surrogate_neurons(current, weights, state, membrane, None, raster, constants)
    assert not membrane.isnan().any()


@needs_kernel
def test_no_result_depends_on_the_number_of_threads(monkeypatch):
    monkeypatch.setattr(library, "_SHARE", 64)
    found, current = [], numbers(12, 5, 2000, seed=0)
    for count, recurrent in itertools.product((1, 3), (False, True)):
        torch.manual_seed(0)
        neurons = SurrogateLIF(2000, beta=0.1, recurrent=recurrent, time_dim=0).double()
        with threads(count):
            neurons(current if not recurrent else current.mul(2.0))
            potential = Potential(neurons.membrane, neurons.threshold, Triangular())
            fold = fold_in_blocks(current.__getitem__, potential, torch.empty_like(current), 0.9)
        found.append((neurons.membrane, neurons.threshold, *fold))
    for one, several in zip(found[:2], found[2:], strict=True):
        assert all(map(torch.equal, one, several))
