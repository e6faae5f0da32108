"""The compiled kernel is held to the plain form, and does nothing that it should not."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_helpers import needs_kernel, numbers, spikes, threads
from test_folding import B, T, folding

from lightning_accum import nn
from lightning_accum._compat.torch_internals import parallel_region
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.term_operands import Activity
from lightning_accum.engine.vjp import PerSynapse
from lightning_accum.functional import ExponentialKernel, Triangular
from lightning_accum.rules.kernel import SpikePairs
from lightning_accum.sparse import event_sums, neurons
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.eprop import Potential, fold_in_blocks
from lightning_accum.sparse.event_sums import Rows, event_matmul, outer_sum_into
from lightning_accum.sparse.events import Events, find, first_of_each
from lightning_accum.sparse.spike_pairs import LatestSpikes, Visit, pair_events

CPU = torch.device("cpu")
pytestmark = needs_kernel
REALS = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
quick = settings(derandomize=True, max_examples=25)
sizes = {
    "steps": st.integers(1, 6), "batch": st.integers(0, 4),
    "inputs": st.sampled_from([1, 3, 16, 35, 70]),
    "outputs": st.sampled_from([1, 15, 16, 32, 33, 70]),
    "density": st.sampled_from([0.0, 0.05, 0.5, 1.0]), "seed": st.integers(0, 99),
}  # fmt: skip


def close(found, expected):
    tolerance = 2e-5 if found.dtype == torch.float32 else 1e-12
    torch.testing.assert_close(found, expected.to(found.dtype), rtol=tolerance, atol=tolerance)


@REALS
@quick
@given(
    **sizes, period=st.integers(0, 2), rise=st.sampled_from([None, 0.0, 0.3]),
    losers=st.sampled_from([-1, 0, 2]), lateral=st.sampled_from([0.0, 0.6]),
)  # fmt: skip
def test_neurons_take_currents_that_are_not_written(
    dtype, steps, batch, inputs, outputs, density, seed, period, rise, losers, lateral
):
    raster = spikes(steps * batch, inputs, density=density, seed=seed)
    shape = torch.Size([steps, batch, outputs])
    weight = numbers(outputs, inputs, dtype=dtype, seed=seed)
    product = event_sums.EventProduct(Events(raster), weight, weight[:, 0].clone(), shape)
    constants = neurons.SpikingNeurons(0.9, 0.05, 0.8, 0.95, rise or 0.0, period, losers, lateral)
    found = []
    for current in (product, product.values()):
        out, v, hold = (torch.zeros(size, dtype=dtype) for size in (shape, shape[1:], shape[1:]))
        theta = None if rise is None else torch.zeros(outputs, dtype=dtype)
        state = v, hold if constants.holds else None, theta
        done = neurons.integrate_neurons(current, out, *state, constants)
        assert done == (out.numel() > 0)
        found.append([out, *(each for each in state if each is not None)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    assert not neurons.integrate_neurons(product, out[:-1], *state, constants)


@REALS
@quick
@given(
    **sizes, traces=st.lists(st.sampled_from(event_sums._MODES), min_size=1, max_size=3),
    graded=st.booleans(), edges=st.booleans(), weighted=st.booleans(), rewarded=st.booleans(),
)  # fmt: skip
def test_sums_of_outer_products_with_traces_equal_the_plain_form(
    dtype, steps, batch, inputs, outputs, density, seed, traces, graded, edges, weighted, rewarded
):
    raster = spikes(steps * batch, inputs, density=density, seed=seed)
    drawn = [numbers(steps, batch, outputs, dtype=dtype, seed=seed + i) for i in range(2)]
    drawn = drawn if graded else [values > 0.5 for values in drawn]
    shares = numbers(*raster.shape, dtype=dtype, seed=seed) if weighted else None
    total, sources, plain = 0, [], []
    for i, kind in enumerate(traces):
        before = numbers(batch, outputs, dtype=dtype, seed=seed + i) if edges else None
        factors = numbers(steps, batch, dtype=dtype, seed=seed + 9 + i) if rewarded else None
        for each in sources, plain:
            last = torch.zeros(batch, outputs, dtype=dtype) if edges else None
            # two of three sources share their values
            each.append((i + 0.5, Rows(drawn[i % 2], kind, 0.8, before, last, factors)))
        total = total + (i + 0.5) * event_sums.computed(plain[-1][1], dtype).double()
    factors = raster.double() * (1 if shares is None else shares)
    expected = total.flatten(0, 1).T @ factors
    found = torch.full((outputs, inputs), torch.nan, dtype=dtype)
    assert outer_sum_into(found, False, Events(raster), sources, shares)
    close(found, expected)
    assert outer_sum_into(found, True, Events(raster), sources, shares)
    close(found / 2, expected)
    upright = torch.full((inputs, outputs), torch.nan, dtype=dtype)
    for onto in (False, True):
        assert outer_sum_into(upright, onto, Events(raster), sources, shares, by_event=True)
    close(upright, found.T)
    for (_, one), (_, other) in zip(sources, plain, strict=True):
        if edges and one.trace != "none":
            close(one.last, other.last)


@REALS
@pytest.mark.parametrize("adapts", [False, True])
@pytest.mark.parametrize("spike_dtype", [torch.bool, None])
def test_neurons_spike_the_same_with_and_without(dtype, adapts, spike_dtype):
    options = {"refractory": 2.0, "v_rest": -0.2, "time_dim": 0, "spike_dtype": spike_dtype}
    kind = nn.AdaptiveLIF if adapts else nn.LIF
    x = numbers(40, 3, 1030, dtype=dtype, seed=0).abs() * 0.3

    def run():
        neurons = kind(1030, tc_mem=10.0, **options).to(dtype)
        return torch.cat([neurons(x[:25]), neurons(x[25:])]), neurons.voltage

    found, voltage = run()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "library", lambda dtype: None)
        expected, other = run()
    assert found.float().mean() > 0.02
    assert (found != expected).sum() <= (2 if dtype == torch.float32 else 0)
    if dtype == torch.float64:
        close(voltage, other)


def everything(dtype):
    """What each loop that is divided among threads computes."""
    x = spikes(20, 3, 50, density=0.2, seed=0)
    y = spikes(20, 3, 300, density=0.2, seed=1)
    weight, current = (numbers(*shape, dtype=dtype, seed=2) for shape in ((300, 50), (20, 9, 900)))
    events = Events(x.flatten(0, 1))
    rows = [(1.0, Rows(y, "reverse", 0.9)), (0.5, Rows(y, "nearest", 0.9))]
    total = torch.empty(300, 50, dtype=dtype)
    assert outer_sum_into(total, False, events, rows)
    pairs = SpikePairs(
        ExponentialKernel(0.3, -0.2), Signal(Activity(y)), Signal(Activity(x)), 5 * weight.abs()
    )
    both = pairs.summed(PerSynapse(torch.nn.Linear(50, 300), "weight", ""))
    fold, onto = folding(300, 3, dtype), torch.empty(300, 5, dtype=dtype)
    of = Rows(fold.potential.membrane, "reverse", 0.5, folding=fold)
    assert outer_sum_into(onto, False, Events(spikes(T * B, 5, seed=0)), [(1.0, of)])
    found = [event_matmul(events, weight.T), total, *both, onto]
    recurrent = nn.SurrogateLIF(300, recurrent=True, time_dim=0)
    recurrent.recurrent.weight.data = numbers(300, 300, seed=3) * 0.1
    for lif in (
        nn.AdaptiveLIF(900, time_dim=0), nn.LIF(900, time_dim=0), recurrent,
        nn.SurrogateLIF(900, beta=0.1, time_dim=0),
    ):  # fmt: skip
        given = current[..., : 300 if lif is recurrent else 900].contiguous()
        found += [lif.to(dtype)(given), *lif.get_extra_state().values()]
    potential = Potential(lif.membrane, lif.threshold, Triangular())
    out, constants = torch.empty_like(current), (0.9, 0.0, 0.0)
    found += fold_in_blocks(current.__getitem__, potential, out, constants)
    return [each for each in found if each is not None]


@pytest.fixture(params=["torch's threads", "own threads"])
def many_threads(request, monkeypatch):
    """Threads for every piece of work, torch's or, as after a fork, the kernel's own."""
    kernels = [*library._kernels] if request.param == "own threads" else []
    for kernel in kernels:
        kernel.use_region(None)
    monkeypatch.setattr(library, "_SHARE", 1)
    with threads(5):
        yield
    for kernel in kernels:
        kernel.use_region(library.At(parallel_region()))


@REALS
def test_no_result_depends_on_the_number_of_threads(dtype, many_threads):
    found = [everything(dtype)]
    for count in (1, 2, 200):
        with threads(count):
            found.append(everything(dtype))
    for other in found[1:]:
        assert all(map(torch.equal, found[0], other))


def test_several_threads_of_python_at_once(many_threads):
    expected = everything(torch.float32)
    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(everything, [torch.float32] * 12):
            assert all(map(torch.equal, expected, found))


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_process_that_was_forked_goes_on_without_the_threads_of_the_first(monkeypatch):
    monkeypatch.setattr(library, "_SHARE", 1)
    rows = [(1.0, Rows(spikes(20, 3, 300, density=0.2, seed=1), "reverse", 0.9))]
    events = Events(spikes(60, 50, density=0.2, seed=0))
    expected, found = torch.zeros(2, 300, 50)
    with threads(3):
        assert outer_sum_into(expected, False, events, rows)
        child = os.fork()  # in which torch's own operations must not be parallel
        if not child:
            signal.alarm(15)  # it may wait for ever
            done = outer_sum_into(found, False, events, rows)
            os._exit(0 if done and found.tolist() == expected.tolist() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert outer_sum_into(found, False, events, rows)
    assert torch.equal(found, expected)


@pytest.mark.parametrize("wrong", [-1, 4, 2**30, -(2**31)])
def test_events_outside_of_their_raster_are_refused(wrong):
    raster = torch.ones(6, 4, dtype=torch.bool)
    rows = [(1.0, Rows(torch.ones(6, 1, 33)))]
    for name in ("rows", "columns"):
        events = Events(raster)
        getattr(events, name)[3] = wrong if name == "columns" or wrong != 4 else 6
        refused = pytest.raises(IndexError, match="in the rows and columns of their raster")
        if name == "columns":
            with refused:
                event_matmul(events, torch.ones(33, 4).T)
        with refused:
            outer_sum_into(torch.empty(33, 4), False, events, rows)
        up, down = torch.empty(2, 4, 33)
        latest = LatestSpikes(torch.ones(6, 1, 33).bool(), None, torch.ones(1, 33))
        with refused:
            pair_events(up, down, False, events, latest, Visit(1.0, 0, torch.ones(9), True))
    events = Events(raster)
    _, starts = events.ordered()
    starts[1] = wrong if wrong != 4 else 25
    with pytest.raises(IndexError):
        outer_sum_into(torch.empty(33, 4), False, events, rows)


@REALS
@pytest.mark.parametrize("age", [-10.0, -5.0, -1e5, -(2.0**31), float("nan"), -float("inf")])
def test_what_is_not_a_number_of_steps_is_far_away(dtype, age):
    raster = spikes(3, 2, 40, density=0.3, seed=0)
    events = Events(spikes(6, 5, density=0.5, seed=1))
    table = torch.tensor([1.0, 0.5, 0.25, 7.0], dtype=dtype)

    def changed(before):
        edges = (torch.full((2, 40), at, dtype=dtype) for at in (before, 0.0))
        sums = [torch.empty(5, 40, dtype=dtype) for _ in range(2)]
        visit = Visit(1.0, 0, table, by_spike=True)
        latest = LatestSpikes(raster, *edges)
        assert pair_events(*sums, False, events, latest, visit)
        return sums

    # Ages grow by one in each of the three steps before they are read.
    far, found = changed(float("inf")), changed(age)
    torch.testing.assert_close(found, far, rtol=0, atol=0)


@pytest.mark.parametrize("inputs", [0, 1])
def test_nothing_is_at_an_address_too(inputs):
    missing, empty = library.arguments(None, torch.empty(0))
    assert missing.value is None
    assert empty.value
    none = Events(torch.zeros(3, inputs, dtype=torch.bool))
    ordered, starts = none.ordered()
    assert (len(ordered), starts.tolist(), len(none.order())) == (0, [0] * inputs, 0)


@pytest.mark.parametrize("density", [0.0, 0.02, 0.11, 0.9])
@pytest.mark.parametrize("where", ["everywhere", "in the last rows"])
def test_threads_find_the_same_spikes_in_the_same_order(density, where):
    raster = spikes(5003, 131, density=density, seed=0)
    if where == "in the last rows":  # more than the share of a thread
        raster[:-700] = False
    rows, columns = raster.nonzero().int().unbind(1)
    starts = first_of_each(rows, len(raster))
    for number in (1, 2, 3):
        with threads(number):
            found = find(raster)
        assert all(map(torch.equal, found, (rows, columns, starts))), number
