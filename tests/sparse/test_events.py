import contextlib
import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_helpers import numbers, spikes
from subtests import turns

from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.event_sums import event_matmul, event_outer_sum
from lightning_accum.sparse.events import Events, count_spikes, density

sizes = {
    "k": st.integers(0, 9), "e": st.integers(1, 7), "d": st.integers(1, 5),
    "p": st.sampled_from([0.0, 0.1, 0.5, 1.0]),
}  # fmt: skip
quick = settings(derandomize=True, max_examples=60)


@pytest.fixture(params=["with the kernel", "without"], autouse=True, scope="module")
def kernel(request):
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "without":
            patch.setattr(library, "library", lambda dtype: None)
        yield


@quick
@given(**sizes, weighted=st.booleans(), seed=st.integers(0, 999))
def test_equals_the_dense_product(k, e, d, p, weighted, seed):
    raster = spikes(k, e, density=p, seed=seed)
    rows, values = numbers(2 * k, d, seed=seed + 1)[::2], numbers(k, e, seed=seed + 2)
    weights, events = raster * values if weighted else raster.double(), Events(raster)
    found = event_outer_sum(events, rows, values if weighted else None)
    torch.testing.assert_close(found, weights.T @ rows, rtol=1e-12, atol=1e-12)
    if weighted:
        found = event_outer_sum(events, rows, values[raster])  # of each event, in the same order
        torch.testing.assert_close(found, weights.T @ rows, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("k", [1, 63, 64, 65, 127, 128, 1000])
def test_density_looks_at_few_rows_spread_over_all(k):
    seen = density(torch.ones(k, 3)), density(torch.zeros(k, 3))
    assert seen == (1.0, 0.0)
    looked_at = 0
    for i in range(k):
        single = torch.zeros(k, 1)
        single[i] = 1
        looked_at += density(single) > 0
    assert 0 < looked_at <= 64
    assert density(torch.ones(0, k)) == density(torch.ones(k, 0)) == 0.0
    half = torch.zeros(k, 1)
    half[: k // 2] = 1
    assert density(half) == pytest.approx(0.5, abs=0.5 if k == 1 else 0.05)


@quick
@given(
    **{**sizes, "e": st.sampled_from([1, 7, 35]), "d": st.sampled_from([1, 5, 16, 33, 70])},
    dtype=st.sampled_from([torch.float32, torch.float64]), seed=st.integers(0, 999),
)  # fmt: skip
def test_a_product_by_events_equals_the_dense_one_and_so_does_its_gradient(k, e, d, p, dtype, seed):
    raster = spikes(k, e, density=p, seed=seed)
    events = Events(raster)
    found, dense = (numbers(e, d, seed=seed + 1, dtype=dtype).requires_grad_() for _ in range(2))
    shift = numbers(d, seed=seed + 2, dtype=dtype)
    near = {"rtol": 1e-12, "atol": 1e-12 if dtype == torch.float64 else 2e-5}
    out = event_matmul(events, found)
    expected = raster.to(dtype) @ dense
    torch.testing.assert_close(out, expected, **near)
    with torch.no_grad():
        torch.testing.assert_close(event_matmul(events, found, shift), expected + shift, **near)
    direction = numbers(k, d, seed=seed + 2, dtype=dtype)
    out.backward(direction)
    expected.backward(direction)
    torch.testing.assert_close(found.grad, dense.grad, **near)


@quick
@given(k=st.integers(0, 9), edges=st.lists(st.integers(0, 9), max_size=3), seed=st.integers(0, 99))
def test_parts_are_the_events_of_parts(k, edges, seed):
    raster = spikes(k, 4, density=0.4, seed=seed)
    events = Events(raster)
    edges = sorted({0, k, *(edge for edge in edges if edge < k)})
    for start, stop in itertools.pairwise(edges):
        both = part, alone = events.part(start, stop), Events(raster[start:stop])
        assert part.shape == alone.shape
        assert len(part) == len(alone) == raster[start:stop].sum()
        found = ((e.rows, e.columns, e.row_starts(), *e.ordered(), e.order()) for e in both)
        assert all(map(torch.equal, *found))


@turns("columns", [1, 7, 8, 701, 70_000])
@turns("p", [0.0, 0.001, 0.02, 0.14, 0.16, 0.9])
def test_every_search_finds_the_same(columns, p):
    raster = spikes(2**14 // columns + 3, columns, density=p)
    raster[-1, -1] = True  # also behind the last word
    expected = raster.nonzero()
    views = (raster, raster.T.contiguous().T, raster.to(torch.uint8), -0.5 * raster.double())
    for events in map(Events, views):
        assert torch.equal(torch.stack([events.rows, events.columns], 1).long(), expected)
        assert events.rows.dtype == events.columns.dtype == torch.int32
        order = torch.sort(events.columns, stable=True)[1]
        rows, starts = events.ordered()
        assert torch.equal(events.order(), order)
        assert torch.equal(rows, events.rows[order])
        ordered = events.columns[order]
        assert torch.equal(starts, torch.searchsorted(ordered, torch.arange(columns).int()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_no_sum_reads_beyond_its_tensors_by_what_was_written_to_events(dtype):
    raster = spikes(6, 4, density=0.6)
    table, rows = torch.ones(4, 33, dtype=dtype), torch.ones(6, 33, dtype=dtype)
    expected = raster.to(dtype) @ table, raster.to(dtype).T @ rows
    events = Events(raster)
    starts = events.row_starts()
    starts.copy_(torch.tensor([0, -(2**30), *range(len(starts) - 2)]))
    torch.testing.assert_close(event_matmul(events, table), expected[0])
    torch.testing.assert_close(event_outer_sum(events, rows), expected[1])
    for wrong in (2**30, -(2**30), 4, -1):
        for name in ("rows", "columns"):
            events = Events(raster)
            getattr(events, name)[3] = wrong
            for function, other in ((event_matmul, table), (event_outer_sum, rows)):
                with contextlib.suppress(RuntimeError, IndexError):
                    assert torch.isfinite(function(events, other)).all()


def test_booleans_of_other_bytes_than_one():
    bytes_ = torch.zeros(1000, 400, dtype=torch.uint8)
    bytes_[::7, ::5] = 255
    bytes_[1::9, ::3] = 2
    for part in (bytes_, bytes_[:20]):
        events = Events(part.view(torch.bool))
        assert torch.equal(torch.stack([events.rows, events.columns], 1).long(), part.nonzero())


def test_under_transforms_of_functions():
    raster, table = spikes(40, 6), numbers(6, 3, seed=1).float()
    found = torch.func.grad(lambda w: event_matmul(Events(raster), w).square().sum())(table)
    expected = torch.func.grad(lambda w: (raster.float() @ w).square().sum())(table)
    torch.testing.assert_close(found, expected)


def plain(activity):
    binary = (activity == 0) | (activity == 1)
    return int(activity.sum()) if binary.all() else None


OTHERS = [[each] for each in (0.5, 2.0, -1.0, 1e-9, torch.inf, -torch.inf, torch.nan)]
SUMS = [[2.0, 0.5, 0.5], [3.0, -1.0], [(1 + 7**0.5) / 2, (1 - 7**0.5) / 2]]  # as those of spikes


@turns("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.int64])
@turns("size", [0, 1, 7, (1 << 16) + 3])
@turns("values, first", [([], True), *itertools.product(OTHERS + SUMS, (True, False))])
def test_counts_spikes_and_finds_any_other_value(dtype, size, values, first):
    parts = torch.tensor(values, dtype=torch.float64), spikes(size)
    activity = torch.cat(parts if first else parts[::-1]).to(dtype)
    assert count_spikes(activity) == plain(activity.double())
    assert count_spikes(activity.reshape(1, -1, 1)) == plain(activity.double())
    assert plain(activity.double()) is not None or values
