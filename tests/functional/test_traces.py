import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum.functional import decay_factor, reverse_trace, trace
from lightning_accum.functional.traces import last_trace
from lightning_accum.sparse.events import Events, last_trace_of_events, trace_before_events

quick = settings(deadline=None, derandomize=True, max_examples=40)
shapes = st.tuples(st.integers(1, 7), st.integers(0, 3), st.integers(1, 3))
decays = st.floats(0.0, 1.0)
modes = pytest.mark.parametrize("mode", ["cumulative", "nearest"])


def rand(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def spikes(shape, seed):
    return rand(shape, seed) > 0.3


def naive(activity, decay, mode, before):
    found = []
    for s in activity:
        before = s + decay * before if mode == "cumulative" or s == 0 else s
        found.append(before)
    return found


@modes
@quick
@given(shape=shapes, decay=decays, seed=st.integers(0, 999), carried=st.booleans())
def test_equals_the_recurrence(mode, shape, decay, seed, carried):
    x = rand(shape, seed) * spikes(shape, seed + 1)
    initial = rand(shape[1:], seed + 2)
    found = trace(x, decay, mode, initial if carried else None)
    for i in range(shape[1]):
        for j in range(shape[2]):
            before = initial[i, j].item() if carried else 0.0
            expected = naive(x[:, i, j].tolist(), decay, mode, before)
            assert found[:, i, j].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@modes
@quick
@given(shape=shapes, decay=decays, seed=st.integers(0, 999), carried=st.booleans())
def test_last_trace_is_the_last_of_the_trace(mode, shape, decay, seed, carried):
    x = rand(shape, seed) * spikes(shape, seed + 1)
    initial = rand(shape[1:], seed + 2) if carried else None
    last = last_trace(x, decay, mode, initial)
    torch.testing.assert_close(last, trace(x, decay, mode, initial)[-1], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@modes
@quick
@given(shape=shapes, decay=decays, seed=st.integers(0, 999), carried=st.booleans())
def test_traces_from_events_alone(mode, dtype, shape, decay, seed, carried):
    x = spikes(shape, seed).bool()
    initial = rand(shape[1:], seed + 2).to(dtype) if carried else None
    events = Events(x.flatten(0, 1))
    last = last_trace_of_events(events, x.shape, decay, mode, initial, dtype)
    tolerance = 2e-5 if dtype == torch.float32 else 1e-12
    exact = {"rtol": tolerance, "atol": tolerance}
    whole = trace(x.double(), decay, mode, None if initial is None else initial.double())
    if last is not None:  # there is a kernel
        torch.testing.assert_close(last, whole[-1].to(dtype), **exact)
    if mode == "nearest":
        first = torch.zeros_like(whole[:1]) if initial is None else initial[None].double()
        before = decay * torch.cat([first, whole[:-1]])
        found = trace_before_events(events, x.shape, decay, initial, dtype)
        torch.testing.assert_close(found, before[x].to(dtype), **exact)


@modes
@quick
@given(shape=shapes, decay=decays, seed=st.integers(0, 999))
def test_traces_in_memory_that_was_used_before(mode, shape, decay, seed):
    x = spikes(shape, seed).bool()
    used = torch.full(shape, torch.nan, dtype=torch.float32)
    found = trace(x, decay, mode, out=used)
    assert found is used
    assert torch.equal(found, trace(x, decay, mode))
    assert torch.equal(reverse_trace(x, decay, out=used), reverse_trace(x, decay))
    for wrong in (torch.empty(1, *shape), torch.empty(shape, dtype=torch.float16)):
        with pytest.raises(ValueError, match="Argument `out` should have shape"):
            trace(x, decay, mode, out=wrong)


@quick
@given(shape=shapes, decay=decays, seed=st.integers(0, 999))
def test_reverse_trace_is_the_adjoint(shape, decay, seed):
    x, y = rand(shape, seed), rand(shape, seed + 1)
    forwards, backwards = (y * trace(x, decay)).sum(), (reverse_trace(y, decay) * x).sum()
    torch.testing.assert_close(forwards, backwards, rtol=1e-10, atol=1e-10)


def test_narrow_activity_is_traced_in_float32_or_as_asked():
    for dtype in (torch.bool, torch.uint8, torch.int64, torch.bfloat16):
        x = torch.tensor([[1, 0], [0, 1], [1, 1]]).to(dtype)
        for mode in ("cumulative", "nearest"):
            expected = trace(x.double(), 0.9, mode)
            for fn in (trace, last_trace):
                assert fn(x, 0.9, mode).dtype == torch.float32
                found = fn(x, 0.9, mode, dtype=torch.float64)
                assert torch.equal(found, expected if fn is trace else expected[-1]), dtype
        assert reverse_trace(x, 0.9).dtype == torch.float32


@modes
def test_what_came_before_may_be_narrower_and_is_not_written_to(mode):
    for steps in (1, 2):
        spikes, before = torch.ones(steps, 3, dtype=torch.bool), torch.full((3,), 0.1)
        found = trace(spikes, 0.5, mode, before, torch.float64)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, trace(spikes, 0.5, mode, before.double(), torch.float64))
    x, initial = rand((4, 2), 0), rand((2,), 1)
    copies = x.clone(), initial.clone()
    for fn in (trace, last_trace):
        fn(x, 0.5, mode, initial)
    reverse_trace(x, 0.5)
    assert torch.equal(x, copies[0])
    assert torch.equal(initial, copies[1])


def test_what_is_complex_comes_from_what_is_complex():
    real, complex_ = torch.tensor([1.0, 0.0]), torch.tensor([1j, 0.0])
    for of in (trace, last_trace):
        assert of(complex_, 0.5, initial=torch.tensor(2j)).is_complex()
        assert of(complex_, 0.5, initial=torch.tensor(2.0)).is_complex()
        with pytest.raises(TypeError, match=r"Argument `initial` should be real, as `activity`"):
            of(real, 0.5, initial=torch.tensor(2j))


ONES, NOT_FINITE = torch.ones(3), (math.nan, math.inf, -math.inf)
REFUSED = [
    (lambda: trace(ONES, 0.5, "latest"), "Argument `mode`"),
    (lambda: decay_factor([20.0]), "Argument `tc` should be"),
    (lambda: reverse_trace(ONES, 0.5, behind=10**400), "Argument `behind` should be a tensor"),
    (lambda: trace([1.0], 0.5), "`activity` should be a tensor"),
    (lambda: reverse_trace(torch.ones(()), 0.5), "`values` should be `\\[T, ...\\]`"),
    (lambda: trace(ONES, 0.5, initial=1.0), "`initial` should be a tensor"),
    *((lambda b=bad: decay_factor(b), "`tc` .* Found `tc = ") for bad in (0.0, -1.0, math.nan)),
    *((lambda b=bad: decay_factor(1.0, b), "`dt` ") for bad in (0.0, -1.0, *NOT_FINITE)),
    *(
        (lambda of=of, b=bad: of(ONES, b), "`decay` should be finite")
        for of in (trace, last_trace, reverse_trace)
        for bad in NOT_FINITE
    ),
]


def test_what_does_not_fit_is_rejected():
    assert decay_factor(20.0, 2.0) == math.exp(-0.1)
    for call, words in REFUSED:
        with pytest.raises((TypeError, ValueError), match=words):
            call()
