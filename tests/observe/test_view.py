from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from lightning_accum import observe
from lightning_accum.functional import (
    interp_exponential,
    interp_linear,
    interp_nearest,
    interp_next,
    interp_previous,
)

quick = settings(deadline=None, derandomize=True, max_examples=60)
INTERPOLATIONS = [
    interp_previous,
    interp_next,
    interp_nearest,
    interp_linear,
    partial(interp_exponential, tc=5.0),
]


def filled(
    steps: int, size: int, dt: float, *shape: int
) -> tuple[observe.PassthroughReducer, list]:
    reducer = observe.PassthroughReducer((size - 1) * dt, dt)
    x = torch.rand(
        (steps, *shape), dtype=torch.float64, generator=torch.Generator().manual_seed(steps)
    )
    for observation in x:
        reducer(observation)
    return reducer, x[-size:]


def naive(history, time, dt, interpolation):
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
    # halfway, nearest hangs on the last bit
    fraction = st.floats(0, 1).filter(lambda f: abs(f * (len(history) - 1) % 1 - 0.5) > 1e-6)
    count = math.prod(shape)
    fractions = data.draw(st.lists(fraction, min_size=count, max_size=count))
    times = torch.tensor(fractions, dtype=torch.float64).mul((len(history) - 1) * dt).reshape(shape)
    expected = torch.stack(
        [
            naive(column, time.item(), dt, interpolation)
            for column, time in zip(
                history.reshape(len(history), -1).unbind(1), times.flatten(), strict=True
            )
        ]
    ).reshape(shape)
    found = reducer.view(times, interpolation=interpolation)
    assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for one in times.flatten():
        found = reducer.view(one.item(), interpolation=interpolation)
        expected = torch.stack(
            [
                naive(column, one.item(), dt, interpolation)
                for column in history.reshape(len(history), -1).unbind(1)
            ]
        ).reshape(shape)
        assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_times_broadcast_with_the_state():
    reducer, history = filled(9, 4, 1.0, 2, 3)
    found = reducer.view(torch.arange(4).reshape(4, 1, 1))
    assert torch.equal(found, history.flip(0))
    per_column = reducer.view(torch.tensor([0.0, 1.0, 2.0]))
    assert torch.equal(per_column, torch.stack([history[-1 - i, :, i] for i in range(3)], 1))
    assert reducer.view(torch.empty(0, 1, 1)).shape == (0, 2, 3)
    with pytest.raises(ValueError, match=r"broadcast with the state, \(2, 3\).*shape \(4,\)"):
        reducer.view(torch.zeros(4))


@pytest.mark.parametrize("dt", [0.1, 0.3, 1.0])
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


@pytest.mark.parametrize("time", [-0.1, 2.1, math.nan, math.inf])
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
        latest(torch.tensor([value]))
    assert recorder.view(0.25, interpolation=interp_linear).item() == 0.25
    assert recorder.view(torch.tensor([0.5])).tolist() == [True]
    assert latest.view(torch.tensor([0.0])).tolist() == [0.0]
