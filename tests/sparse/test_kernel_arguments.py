"""What C would not read as torch does is left to torch, and nothing is written then."""

from types import SimpleNamespace

import pytest
import torch
from kernel_helpers import needs_kernel, numbers, spikes
from test_folding import Own

from lightning_accum.functional import Triangular
from lightning_accum.functional.kernels import Coefficients
from lightning_accum.sparse import neurons
from lightning_accum.sparse.eprop import MOST_CLASSES, Folding, Potential, fold_steps
from lightning_accum.sparse.event_sums import Rows, multiply_events, outer_sum_into
from lightning_accum.sparse.events import Events, SpikeRows
from lightning_accum.sparse.neurons import NeuronState, SpikingNeurons
from lightning_accum.sparse.recurrent import PairSTDP, SparseGroup, SparseWeights, can_run_recurrent
from lightning_accum.sparse.spike_pairs import LatestSpikes, Visit, pair_events

pytestmark = needs_kernel
T, B, E, N, CLASSES = 6, 2, 4, 5, 3
PAIR = PairSTDP(0.1, -0.1, 0.9, 0.9, False, False)
EVENTS = Events(torch.ones(T * B, E, dtype=torch.bool))
FOLD = (0.9, 0.3, 0.8)
NEURONS = SpikingNeurons(0.9, 0.0, 1.0, 0.95, 0.1, period=1)


def empty(*shape, dtype=torch.float64):
    return torch.full(shape, 7.0, dtype=dtype)


def multiply(starts, columns, table, bias):
    events = SimpleNamespace(row_starts=lambda: starts, columns=columns)
    return multiply_events(events, table, bias)


def outer(total, starts, rows, values, before, last, weights):
    source = Rows(values, "cumulative", 0.9, before, last, weights)
    events = SimpleNamespace(ordered=lambda: (rows, starts))
    return outer_sum_into(total, False, events, [(1.0, source)])


def pairs(up, down, latest, before, last, delay=None, change=None):
    visit = Visit(1.0, 0, Coefficients((1.0, 1.0)) if change is None else change, by_spike=True)
    return pair_events(up, down, False, EVENTS, LatestSpikes(latest, before, last), visit, delay)


def folding(errors, feedback, membrane, threshold, unfiltered, filtered, adaptation, of=None):
    potential = Potential(membrane, threshold, of or Triangular(0.4, 0.8))
    behind = filtered, adaptation
    found = Folding(lambda: errors, errors, feedback, potential, FOLD, unfiltered, behind)
    return found.suits_kernel()


def folded(signal, membrane, threshold, out, filtered, adaptation, unfiltered, of=None):
    potential = Potential(membrane, threshold, of or Triangular(0.4, 0.8))
    return fold_steps(signal, potential, out, (filtered, adaptation), FOLD, unfiltered)


def surrogate(current, weights, v, adaptation, spiked, membrane, limits, raster):
    return neurons.integrate_surrogate_neurons(
        current, weights, (v, adaptation, spiked), membrane, limits, raster, (0.9, 1.0, 0.3, 0.9)
    )


def recurrent(inputs, past, v, hold, theta, outputs, starts, weight, pre, post, delay=2):
    group = SparseGroup(SpikingNeurons(0.9, 0.0, 1.0), NeuronState(v, hold, theta), N)
    own = 0, 0, delay, starts, outputs, weight, PAIR, pre, post
    return can_run_recurrent(inputs, past, [group], [SparseWeights(*own)])


def of_steps(*names, width=N):
    return {name: numbers(T, B, width, seed=i) for i, name in enumerate(names)}


def of_samples(*names):
    return {name: numbers(B, N, seed=i) for i, name in enumerate(names)}


PAIRS = {
    "up": empty(E, N), "down": empty(E, N), "latest": spikes(T, B, N),
    **of_samples("before", "last"),
}  # fmt: skip
# A function, tensors that it reads or writes, and what else it does not take in their place.
CALLS = {
    "multiply_events": (
        multiply,
        {"starts": EVENTS.row_starts(), "columns": EVENTS.columns, "table": numbers(N, E),
         "bias": numbers(N)},
        {"table": [numbers(N, E).requires_grad_(), numbers(N, E).to_sparse()]},
    ),
    "outer_sum_into": (
        outer,
        {"total": empty(N, E), "starts": EVENTS.ordered()[1], "rows": EVENTS.ordered()[0],
         "values": spikes(T, B, N), **of_samples("before", "last"),
         "weights": numbers(T, B)},
        {"values": [torch.ones(N).double()], "total": [empty(E, N).T]},
    ),
    "integrate_neurons": (
        lambda **given: neurons.integrate_neurons(**given, constants=NEURONS),
        {**of_steps("current", "out"), **of_samples("v", "hold"), "theta": numbers(N)},
        {"out": [empty(T - 1, B, N)]},
    ),
    "pair_events": (
        pairs, {**PAIRS, "delay": numbers(E, N)}, {"delay": [numbers(N, E)], "up": [empty(N, E).T]},
    ),
    "pair_events, a table": (
        pairs, {**PAIRS, "change": numbers(9)}, {"change": [numbers(0)], "delay": [numbers(E, N)]},
    ),
    "Folding": (
        folding,
        {**of_steps("membrane", "threshold"), "errors": numbers(T, B, CLASSES),
         "feedback": numbers(CLASSES, N), "unfiltered": numbers(N),
         **of_samples("filtered", "adaptation")},
        {"of": [Own()], "errors": [numbers(T - 1, B, CLASSES)], "feedback": [numbers(1, N)]},
    ),
    "fold_steps": (
        folded,
        {**of_steps("signal", "membrane", "threshold", "out"),
         **of_samples("filtered", "adaptation", "unfiltered")},
        {"of": [Own()], "signal": [numbers(T - 1, B, N)], "unfiltered": [numbers(N)]},
    ),
    "integrate_surrogate_neurons": (
        surrogate,
        {**of_steps("current", "membrane", "limits"), "weights": numbers(N, N),
         **of_samples("v", "adaptation", "spiked"), "raster": empty(T + 1, B, N)},
        {"current": [numbers(B, N)], "raster": [empty(T, B, N)], "weights": [numbers(N, N).T]},
    ),
    "can_run_recurrent": (
        recurrent,
        {"inputs": numbers(T, N), "past": spikes(3, N), "v": numbers(1, N), "hold": numbers(1, N),
         "theta": numbers(N), "outputs": torch.arange(N).int(), "starts": torch.arange(N + 1),
         "weight": numbers(N), "pre": numbers(N), "post": numbers(N)},
        {"inputs": [numbers(0, N)], "v": [numbers(1, 0)], "delay": [0, 4],
         "weight": [numbers(N + 1)], "starts": [torch.arange(N + 1).int()]},
    ),
    "SpikeRows": (
        lambda step: SpikeRows(spikes(T, B, N), torch.float64).write(0, step),
        {"step": spikes(B, N).double()},
        {"step": [spikes(B, N), torch.ones(1, 1).double().expand(B, N)]},
    ),
}  # fmt: skip
FREE = "starts", "rows", "columns", "table", "change"  # of which fewer are as good


def done(found):
    return found is not None and found is not False


def spoiled(tensor):
    """The tensor in another layout, dtype and sign, and one that is smaller."""
    yield torch.stack([tensor, tensor], -1)[..., 0]
    yield tensor.half()
    if tensor.is_floating_point():
        yield torch._neg_view(tensor)
    yield tensor[..., :-1].contiguous()


@pytest.mark.parametrize("name", CALLS)
def test_what_c_would_not_read_as_torch_does_is_left_to_torch(name):
    call, good, others = CALLS[name]
    before = {key: value.clone() for key, value in good.items()}
    for key in {**good, **others}:
        wrong = [*others.get(key, []), *(spoiled(good[key]) if key in good else [])]
        for each in wrong[: -1 if key in FREE else None]:
            assert not done(call(**{**good, key: each})), (key, each)
    torch.testing.assert_close(good, before, rtol=0, atol=0)
    assert done(call(**good))


def test_what_takes_too_much_memory_or_time_is_left_to_torch(monkeypatch):
    call, good, _ = CALLS["Folding"]
    wide = {"errors": numbers(T, B, MOST_CLASSES + 1), "feedback": numbers(MOST_CLASSES + 1, N)}
    assert not call(**{**good, **wide})
    assert call(**{**good, "errors": good["errors"][0]})
    call, good, _ = CALLS["integrate_surrogate_neurons"]
    monkeypatch.setattr(neurons, "_WEIGHTS", good["weights"].nbytes - 1)
    assert not call(**good)
