from __future__ import annotations

import copy
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close
from turns import turns

from lightning_accum import observe

quick = settings(deadline=None, derandomize=True, max_examples=40)
TC, ALPHA, SIZE = 7.0, 0.3, 2.0


def above(x: Tensor) -> Tensor:
    return x > 0.3


def naive_trace(nearest: bool, amplitude: Callable[[float], float]) -> Callable[..., list[float]]:
    def run(values: list[float], dt: float) -> list[float]:
        events = [(i, amplitude(v)) for i, v in enumerate(values) if v > 0.3]
        out = []
        for now in range(len(values)):
            past = [(i, a) for i, a in events if i <= now][-1 if nearest else 0 :]
            out.append(sum(a * math.exp(-(now - i) * dt / TC) for i, a in past))
        return out

    return run


def naive_age(values: list[float], dt: float) -> list[float]:
    last, out = -math.inf, []
    for now, v in enumerate(values):
        last = now if v > 0.3 else last
        out.append((now - last) * dt)
    return out


def naive_ema(values: list[float], dt: float) -> list[float]:
    n = len(values)
    weights = [
        [(ALPHA if u else 1.0) * (1 - ALPHA) ** (t - u) for u in range(t + 1)] for t in range(n)
    ]
    return [sum(w * v for w, v in zip(row, values, strict=False)) for row in weights]


def naive_mean(values: list[float], dt: float) -> list[float]:
    return [sum(values[: t + 1]) / (t + 1) for t in range(len(values))]


def one(value: float) -> float:
    return SIZE


def scaled(value: float) -> float:
    return SIZE * value


def trace(duration: float, dt: float, **options: Any) -> observe.TraceReducer:
    return observe.TraceReducer(TC, SIZE, duration, dt, above, **options)


# how each is made from duration and step, and what it should say of one element's values
Make = Callable[[float, float], Any]
KINDS: dict[str, tuple[Make, Callable[[list[float], float], list[float]]]] = {
    "passthrough": (observe.PassthroughReducer, lambda values, dt: values),
    "event": (lambda d, dt: observe.EventReducer(d, dt, above), naive_age),
    "ema": (lambda d, dt: observe.EMAReducer(ALPHA, d, dt), naive_ema),
    "average": (observe.CumulativeAverageReducer, naive_mean),
}
for mode in ("nearest", "cumulative"):
    for proportional, amplitude in ((False, one), (True, scaled)):
        KINDS[f"{mode}-{amplitude.__name__}"] = (
            partial(trace, mode=mode, proportional=proportional),
            naive_trace(mode == "nearest", amplitude),
        )
each = pytest.mark.parametrize(("make", "naive"), KINDS.values(), ids=KINDS.keys())


def reference(naive, x: Tensor, dt: float) -> Tensor:
    columns = [naive(column.tolist(), dt) for column in x.reshape(len(x), -1).unbind(1)]
    return torch.tensor(columns, dtype=torch.float64).T.reshape(x.shape)


def random(seed: int, *shape: int) -> Tensor:
    return torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@each
@quick
@given(
    steps=st.integers(1, 12),
    shape=st.lists(st.integers(1, 3), max_size=3),
    kept=st.integers(1, 6),
    dt=st.sampled_from([0.1, 0.3, 1.0, 2.5]),
    seed=st.integers(0, 999),
)
def test_as_the_naive_reference_at_every_step(make, naive, steps, shape, kept, dt, seed):
    x = random(seed, steps, *shape)
    reducer, expected = make((kept - 1) * dt, dt), reference(naive, x, dt)
    for t, observation in enumerate(x):
        reducer(observation)
        assert_close(reducer.peek(), expected[t], rtol=1e-10, atol=1e-10)
        history = expected[max(0, t + 1 - kept) : t + 1]
        assert_close(reducer.dump(), history, rtol=1e-10, atol=1e-10)
        for back in range(len(history)):
            found = reducer.view(back * dt)
            assert_close(found, history[len(history) - 1 - back], rtol=1e-10, atol=1e-10)


@each
def test_memory_is_made_once_and_used_again(make, naive):
    reducer, x = make(3.0, 1.0), random(0, 20, 2)
    reducer(x[0])
    address = reducer._state["ring"].data_ptr()
    for observation in x[1:]:
        reducer(observation)
    reducer.clear()
    assert reducer.peek() is None
    assert reducer.dump() is None
    assert reducer.view() is None
    for observation in x:
        reducer(observation)
    assert reducer._state["ring"].data_ptr() == address
    assert reducer._state["ring"].shape == (4, 2)
    assert_close(reducer.dump(), reference(naive, x, 1.0)[-4:], rtol=1e-10, atol=1e-10)


@each
def test_what_is_handed_out_is_a_copy(make, naive):
    reducer, x = make(1.0, 1.0), random(1, 4, 2)
    reducer(x[0])
    out = reducer.peek(), reducer.dump(), reducer.view()
    before = copy.deepcopy(out)
    for observation in x[1:]:
        reducer(observation)
    assert_close(out, before, rtol=0, atol=0)


@each
def test_the_batch_changes_with_clear_alone(make, naive):
    reducer = make(2.0, 1.0)
    reducer(random(0, 4, 3))
    reducer(random(1, 4, 3))
    with pytest.raises(ValueError, match=r"Found \(2, 3\) after 2 of \(4, 3\): clear"):
        reducer(random(2, 2, 3))
    assert reducer.steps == 2
    reducer.clear()
    reducer(random(3, 2, 3))
    assert reducer.dump().shape == (1, 2, 3)


@each
@turns("steps", [1, 2, 3, 7])
@turns("duration", [0.0, 1.0, 5.0])
def test_a_state_loads_whatever_the_duration(make, naive, steps, duration):
    """Of a shorter history goes the beginning; a longer one begins where that did."""
    saved, loaded, x = make(2.0, 1.0), make(duration, 1.0), random(2, 10, 2)
    for observation in x[:steps]:
        saved(observation)
    loaded.load_state_dict(saved.state_dict())
    for observation in x[steps:]:
        loaded(observation)
    expected = reference(naive, x, 1.0)[-min(loaded.size, 10 - steps + min(3, steps)) :]
    assert_close(loaded.dump(), expected, rtol=1e-10, atol=1e-10)


@each
def test_half_precision_and_booleans_fold_in_float32(make, naive):
    for dtype in (torch.bfloat16, torch.float16, torch.bool, torch.int64):
        reducer = make(0.0, 1.0)
        if dtype == torch.bool and not isinstance(reducer, observe.PassthroughReducer):
            reducer.criterion = torch.Tensor.bool
        reducer(torch.ones(2).to(dtype))
        wanted = dtype if isinstance(reducer, observe.PassthroughReducer) else torch.float32
        assert reducer.peek().dtype == wanted
        if dtype == torch.bfloat16:
            assert reducer.to(torch.bfloat16).peek().dtype == wanted


@each
def test_autograd_sees_nothing(make, naive):
    reducer = make(1.0, 1.0)
    reducer(random(0, 2).requires_grad_())
    reducer(random(1, 2).requires_grad_())
    assert not reducer.dump().requires_grad


@each
def test_goes_on_after_a_move_in_inference_mode(make, naive):
    reducer, x = make(2.0, 1.0), random(3, 5, 2)
    reducer(x[0].float())
    with torch.inference_mode():
        reducer.to(torch.float64)
        reducer(x[1])
    assert_close(reducer.dump(), reference(naive, x[:2], 1.0), rtol=1e-5, atol=1e-5)
    for observation in x[2:]:
        reducer(observation)
    assert_close(reducer.dump(), reference(naive, x, 1.0)[-3:], rtol=1e-5, atol=1e-5)


@each
def test_follows_the_observations_to_another_device(make, naive):
    reducer = make(2.0, 1.0)
    reducer(torch.ones(2))
    reducer(torch.ones(2, device="meta"))
    assert reducer.dump().shape == (2, 2)
    assert reducer.dump().device.type == "meta"


def test_a_wider_dtype_widens_what_is_kept():
    reducer = observe.PassthroughReducer(2.0)
    reducer(torch.tensor([1]))
    reducer(torch.tensor([1.5]))
    assert reducer.dump().flatten().tolist() == [1.0, 1.5]


@pytest.mark.parametrize(("duration", "dt", "size"), [(0.3, 0.1, 4), (1.0, 0.3, 4), (0.9, 1, 1)])
def test_a_duration_holds_its_whole_steps(duration, dt, size):
    assert observe.PassthroughReducer(duration, dt).size == size


def test_a_condition_beside_the_observation():
    x, condition = random(0, 6, 2, 3), random(1, 6, 2, 3) > 0.5
    nearest, cumulative = (
        observe.TraceReducer(TC, SIZE, 9.0, criterion=None, mode=mode, proportional=True)
        for mode in ("nearest", "cumulative")
    )
    a, expected = math.exp(-1 / TC), [torch.zeros(2, 3), torch.zeros(2, 3)]
    for observation, event in zip(x, condition, strict=True):
        nearest(observation, event)
        cumulative(observation, event)
        expected = [
            torch.where(event, SIZE * observation, a * expected[0]),
            a * expected[1] + SIZE * observation * event,
        ]
        assert_close([nearest.peek(), cumulative.peek()], expected)
    nearest(x[0], torch.tensor([True, False, True]))
    assert torch.equal(nearest.peek()[:, [0, 2]], SIZE * x[0][:, [0, 2]])
    with pytest.raises(ValueError, match=r"broadcast to the observation, \(2, 3\).*\(4,\)"):
        nearest(x[0], torch.ones(4))
    with pytest.raises(ValueError, match=r"Argument `condition`.*a `criterion`"):
        nearest(x[0])
    assert nearest.steps == 7


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: observe.PassthroughReducer(-1.0), "Argument `duration`.*`duration = -1.0`"),
        (lambda: observe.PassthroughReducer(math.inf), "Argument `duration`.*`duration = inf`"),
        (lambda: observe.EventReducer(dt=0.0), "Argument `dt`"),
        (lambda: observe.EMAReducer(0.0), "Argument `alpha`.*`alpha = 0.0`"),
        (lambda: observe.EMAReducer(1.5), "Argument `alpha`.*`alpha = 1.5`"),
        (lambda: observe.TraceReducer(0.0), "Argument `tc`.*`tc = 0.0`"),
        (lambda: observe.TraceReducer(1.0, mode="last"), r"Argument `mode`.*'last'"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()
