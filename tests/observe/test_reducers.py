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
from torch import Tensor, nn
from torch.testing import assert_close
from turns import turns

from lightning_accum import observe
from lightning_accum.functional import (
    interp_exponential,
    interp_linear,
    interp_nearest,
    interp_next,
    interp_previous,
)

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
each = turns("make, naive", KINDS.values())


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
def test_memory_is_made_once_and_used_again_and_what_is_handed_out_is_a_copy(make, naive):
    reducer, x = make(3.0, 1.0), random(0, 20, 2)
    reducer(x[0].requires_grad_())
    address, out = reducer._state["ring"].data_ptr(), (reducer.peek(), reducer.dump())
    before = copy.deepcopy((*out, reducer.view()))
    out = (*out, reducer.view())
    for observation in x[1:].detach():
        reducer(observation)
    assert_close(out, before, rtol=0, atol=0)
    assert not any(each.requires_grad for each in out)
    reducer.clear()
    assert reducer.peek() is reducer.dump() is reducer.view() is None
    for observation in x.detach():
        reducer(observation)
    assert reducer._state["ring"].data_ptr() == address
    assert reducer._state["ring"].shape == (4, 2)
    assert_close(reducer.dump(), reference(naive, x, 1.0)[-4:], rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match=r"Found \(1, 2\) after 20 of \(2,\): clear"):
        reducer(x[:1])
    assert reducer.steps == 20
    reducer(torch.ones(2, device="meta"))  # follows the observations
    assert reducer.dump().device.type == "meta"
    reducer.clear()
    reducer(x[:1])
    assert reducer.dump().shape == (1, 1, 2)


def test_a_wider_dtype_widens_what_is_kept_and_a_duration_holds_its_whole_steps():
    reducer = observe.PassthroughReducer(2.0)
    reducer(torch.tensor([1]))
    reducer(torch.tensor([1.5]))
    assert reducer.dump().flatten().tolist() == [1.0, 1.5]
    for duration, dt, size in ((0.3, 0.1, 4), (1.0, 0.3, 4), (0.9, 1, 1)):
        assert observe.PassthroughReducer(duration, dt).size == size


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


# ---------------------------------------------------------------------------- views
INTERPOLATIONS = [
    interp_previous,
    interp_next,
    interp_nearest,
    interp_linear,
    partial(interp_exponential, tc=5.0),
]


def filled(steps: int, size: int, dt: float, *shape: int) -> tuple[Any, Tensor]:
    reducer, x = observe.PassthroughReducer((size - 1) * dt, dt), random(steps, steps, *shape)
    for observation in x:
        reducer(observation)
    return reducer, x[-size:]


def between(history, time, dt, interpolation):
    """One element's value: finds the two observations around the moment by looking at them all."""
    ago = [(len(history) - 1 - i) * dt for i in range(len(history))]
    for value, age in zip(history, ago, strict=True):
        if abs(age - time) <= 1e-5:
            return value
    i = max(i for i, age in enumerate(ago) if age > time)
    elapsed = torch.tensor(ago[i] - time, dtype=torch.float64)
    return interpolation(history[i], history[i + 1], elapsed, dt)


@quick
@given(
    steps=st.integers(1, 12),
    size=st.integers(1, 6),
    dt=st.sampled_from([0.1, 1.0, 2.5]),
    shape=st.lists(st.integers(1, 3), max_size=2),
    interpolation=st.sampled_from(INTERPOLATIONS),
    data=st.data(),
)
def test_a_moment_for_all_and_a_moment_per_element(steps, size, dt, shape, interpolation, data):
    reducer, history = filled(steps, size, dt, *shape)
    columns = history.reshape(len(history), -1).unbind(1)
    # halfway, nearest hangs on the last bit
    fraction = st.floats(0, 1).filter(lambda f: abs(f * (len(history) - 1) % 1 - 0.5) > 1e-6)
    fractions = data.draw(st.lists(fraction, min_size=len(columns), max_size=len(columns)))
    times = torch.tensor(fractions, dtype=torch.float64).mul((len(history) - 1) * dt)
    for some in (times, *(one.expand(len(columns)) for one in times)):
        values = zip(columns, some.tolist(), strict=True)
        expected = torch.stack([between(each, time, dt, interpolation) for each, time in values])
        given = some.reshape(shape) if some is times else some[0].item()
        found = reducer.view(given, interpolation=interpolation)
        assert_close(found, expected.reshape(shape), rtol=1e-10, atol=1e-10)


def test_times_broadcast_with_the_state():
    reducer, history = filled(9, 4, 1.0, 2, 3)
    found = reducer.view(torch.arange(4).reshape(4, 1, 1))
    assert torch.equal(found, history.flip(0))
    per_column = reducer.view(torch.tensor([0.0, 1.0, 2.0]))
    assert torch.equal(per_column, torch.stack([history[-1 - i, :, i] for i in range(3)], 1))
    assert reducer.view(torch.empty(0, 1, 1)).shape == (0, 2, 3)
    with pytest.raises(ValueError, match=r"broadcast with the state, \(2, 3\).*shape \(4,\)"):
        reducer.view(torch.zeros(4))


@turns("dt", [0.1, 0.3, 1.0])
def test_float32_times_on_the_grid_are_on_the_grid(dt):
    reducer, history = filled(200, 200, dt, 1)
    for back in range(200):
        time = torch.tensor(back * dt, dtype=torch.float32)
        assert torch.equal(reducer.view(time, interpolation=interp_next), history[199 - back])
        assert torch.equal(reducer.view(time, interpolation=interp_previous), history[199 - back])


def test_the_tolerance_is_how_far_from_an_observation_is_at_it():
    reducer, history = filled(3, 3, 1.0, 1)
    assert torch.equal(reducer.view(0.9, 0.2, interp_previous), history[1])
    assert torch.equal(reducer.view(1.1, 0.2, interp_previous), history[1])
    assert torch.equal(reducer.view(1.1, 0.05, interp_previous), history[0])
    assert torch.equal(reducer.view(-0.1, 0.2), history[2])
    assert torch.equal(reducer.view(2.1, 0.2), history[0])
    assert torch.equal(reducer.view(3.9, 3.0), history[0])  # never round to the other end
    assert torch.equal(reducer.view(1.0, 0.0), history[1])
    for wrong in (-1.0, -1e-9, math.nan):
        with pytest.raises(ValueError, match=rf"Argument `tolerance`.*`tolerance = {wrong}`"):
            reducer.view(0.0, wrong)


@turns("time", [-0.1, 2.1, math.nan, math.inf])
def test_moments_outside_of_the_history(time):
    reducer, _ = filled(3, 9, 1.0, 2)
    with pytest.raises(ValueError, match=r"0 to 2.0 ms. Found `time = "):
        reducer.view(time)
    with pytest.raises(ValueError, match=r"0 to 2.0 ms. Found `time` from .* to "):
        reducer.view(torch.tensor([1.0, time]))


def test_what_a_reducer_knows_of_its_state():
    """Between observations a trace decays, an age grows, and other states stay."""
    trace = observe.TraceReducer(5.0, duration=2.0)
    age = observe.EventReducer(2.0)
    mean = observe.EMAReducer(0.5, 2.0)
    for spike in (1.0, 0.0, 1.0):
        for reducer in (trace, age, mean):
            reducer(torch.tensor([spike], dtype=torch.float64))
    for time in (1.25, 1.5, 0.25):
        ago = 2 - time
        assert trace.view(time).item() == pytest.approx(math.exp(-ago / 5.0))
        assert age.view(time).item() == pytest.approx(ago)
    assert mean.view(1.5).item() == 1.0
    assert mean.view(0.5).item() == 0.5
    assert age.view(0.5, interpolation=interp_previous).item() == 1.0


def test_through_a_monitor():
    relu = nn.ReLU()
    monitor = observe.OutputMonitor(relu, reducer=observe.PassthroughReducer(2.0))
    for value in (1.0, 2.0, 4.0):
        relu(torch.tensor([value]))
    assert monitor.view(0.5, interpolation=interp_linear).item() == 3.0
    assert monitor.view(torch.tensor([1.0])).item() == 2.0
    assert monitor.view(0.9, 0.2).item() == 2.0


def test_moments_of_recordings_and_of_the_latest():
    recorder, latest = observe.WindowRecorder(spikes=True), observe.Latest()
    for value in (1.0, 0.0):
        recorder(torch.tensor([value]))
        with torch.inference_mode(value == 1.0):
            latest(torch.tensor([value], requires_grad=True))
    assert recorder.view(0.25, interpolation=interp_linear).item() == 0.25
    assert recorder.view(torch.tensor([0.5])).tolist() == [True]
    assert latest.view(torch.tensor([0.0])).tolist() == [0.0]
    assert not latest.peek().requires_grad
    with pytest.raises(ValueError, match="within the kept history"):
        latest.view(1.0)
    latest.clear()
    assert latest.peek() is latest.dump() is None
