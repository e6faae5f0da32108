"""The cost model's choices where the fastest path is ahead by far."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lightning_accum.engine.signal import Signal
from lightning_accum.engine.source import Source
from lightning_accum.engine.terms import Term
from lightning_accum.sparse import compiled
from lightning_accum.sparse.costs import cheapest, events_pay


def side(neurons: int, share: float, batch: int = 32) -> Signal:
    generator = torch.Generator().manual_seed(neurons)
    return Signal(Source(torch.rand(40, batch, neurons, generator=generator) < share))


@pytest.fixture(params=[True, False], ids=["kernel", "torch"])
def kernel(request, monkeypatch) -> bool:
    """Whether there is a compiled kernel."""
    if not request.param:
        monkeypatch.setattr(compiled, "library", lambda dtype: None)
    elif not compiled.has_kernel(torch.device("cpu"), torch.float32):
        pytest.skip("needs a C compiler")
    return request.param


def pairs(pre: Signal, post: Signal, reward: Tensor | None = None) -> list[Term]:
    y, traced = post, post.trace(20.0)
    if reward is not None:
        y, traced = y * reward, traced * reward
    return [Term(1.0, y, pre.trace(20.0)), Term(-1.0, traced, pre)]


@pytest.mark.parametrize(
    ("neurons", "by_torch", "by_kernel"),
    [(1600, "post", "pre"), (400, "pre", "pre"), (100, "pre", "pre")],
)
def test_pairs_of_spikes(kernel: bool, neurons: int, by_torch: str, by_kernel: str) -> None:
    pre, post = side(784, 0.02), side(neurons, 0.018)
    assert cheapest(pairs(pre, post)) == (by_kernel if kernel else by_torch)
    # without the kernel, a trace that is weighted stays on its side, in a dense product
    assert cheapest(pairs(pre, post, torch.ones(1, 32, 1))) == "pre"


def test_a_short_window_of_one_sample_writes_a_large_matrix_once(kernel: bool) -> None:
    assert cheapest(pairs(side(784, 0.02, 1), side(1600, 0.02, 1))) == "dense"


def test_nearest_traces_of_a_thin_layer(kernel: bool) -> None:
    pre, post = side(784, 0.02), side(10, 0.02)
    terms = [
        Term(1.0, post, pre.trace(20.0, "nearest")),
        Term(-1.0, post.trace(20.0, "nearest"), pre),
    ]
    assert cheapest(terms) == ("post" if kernel else "pre")


@pytest.mark.parametrize(("rows", "pays"), [(1, False), (32, False), (64, False), (512, True)])
def test_a_matrix_is_not_transposed_for_few_rows(rows: int, pays: bool) -> None:
    raster = torch.rand(rows, 784, generator=torch.Generator().manual_seed(0)) < 0.02
    assert events_pay(raster, 400) == pays
