import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_helpers import numbers

from lightning_accum.functional import decay_factor, reverse_trace, trace
from lightning_accum.functional.traces import last_trace
from lightning_accum.sparse.events import Events, last_trace_of_events, trace_before_events

quick = settings(deadline=None, derandomize=True, max_examples=40)
shapes = st.tuples(st.integers(1, 7), st.integers(0, 3), st.integers(1, 3))
decays = st.floats(0.0, 1.0)
near = {"rtol": 1e-10, "atol": 1e-10}
modes = pytest.mark.parametrize("mode", ["cumulative", "nearest"])


def rand(shape, seed):
    return numbers(*shape, seed=seed)


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
    initial = rand(shape[1:], seed + 2) if carried else None
    copies = x.clone(), None if initial is None else initial.clone()
    used = torch.full(shape, torch.nan, dtype=torch.float64)  # memory that was used before
    found = trace(x, decay, mode, initial, out=used)
    assert found is used
    assert torch.equal(found, trace(x, decay, mode, initial))
    for i in range(shape[1]):
        for j in range(shape[2]):
            before = initial[i, j].item() if carried else 0.0
            expected = naive(x[:, i, j].tolist(), decay, mode, before)
            assert found[:, i, j].tolist() == pytest.approx(expected, rel=1e-12, abs=1e-12)
    last = last_trace(x, decay, mode, initial)
    torch.testing.assert_close(last, found[-1], rtol=1e-12, atol=1e-12)
    y = rand(shape, seed + 3)
    back = reverse_trace(y, decay)
    assert torch.equal(reverse_trace(y, decay, out=used), back)
    if mode == "cumulative":  # of which it is the adjoint
        torch.testing.assert_close((y * trace(x, decay)).sum(), (back * x).sum(), **near)
    assert torch.equal(x, copies[0])
    assert initial is None or torch.equal(initial, copies[1])


@pytest.mark.usefixtures("either_form")
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
def test_what_came_before_may_be_narrower(mode):
    for steps in (1, 2):
        spikes, before = torch.ones(steps, 3, dtype=torch.bool), torch.full((3,), 0.1)
        found = trace(spikes, 0.5, mode, before, torch.float64)
        assert found.dtype == torch.float64
        torch.testing.assert_close(found, trace(spikes, 0.5, mode, before.double(), torch.float64))


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
    *(
        (lambda w=wrong: trace(torch.ones(3, 1), 0.5, out=w), "Argument `out` should have shape")
        for wrong in (torch.empty(1, 3, 1), torch.empty(3, 1, dtype=torch.float16))
    ),
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
    assert decay_factor(20.0) == math.exp(-0.05)  # of a step of 1 ms
    for call, words in REFUSED:
        with pytest.raises((TypeError, ValueError), match=words):
            call()
