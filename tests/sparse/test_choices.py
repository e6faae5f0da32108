"""The cost model's choices where the fastest path is ahead by far."""

from __future__ import annotations

import pytest
import torch

from lightning_accum.engine.signal import Signal
from lightning_accum.engine.source import Source
from lightning_accum.engine.terms import Term
from lightning_accum.sparse.compiled import has_kernel
from lightning_accum.sparse.costs import cheapest, events_pay


def side(neurons: int, share: float) -> Signal:
    generator = torch.Generator().manual_seed(neurons)
    return Signal(Source(torch.rand(40, 32, neurons, generator=generator) < share))


@pytest.mark.parametrize(
    ("neurons", "share", "plain", "rewarded"),
    [(1600, 0.02, "post", "pre"), (400, 0.02, "pre", "pre"), (400, 0.1, "post", "pre"),
     (100, 0.02, "pre", "pre")],
)  # fmt: skip
def test_pairs_of_spikes(neurons: int, share: float, plain: str, rewarded: str) -> None:
    pre, post = side(784, share), side(neurons, 0.9 * share)
    for reward, path in ((1.0, plain), (torch.ones(1, 32, 1), rewarded)):
        # without the kernel, a trace that is weighted stays on its side, in a dense product
        path = plain if has_kernel(torch.device("cpu"), torch.float32) else path
        y, traced = post, post.trace(20.0)
        if isinstance(reward, torch.Tensor):
            y, traced = y * reward, traced * reward
        assert cheapest([Term(1.0, y, pre.trace(20.0)), Term(-1.0, traced, pre)]) == path


def test_nearest_traces_move_from_the_side_of_few_spikes() -> None:
    pre, post = side(784, 0.02), side(10, 0.02)
    terms = [
        Term(1.0, post, pre.trace(20.0, "nearest")),
        Term(-1.0, post.trace(20.0, "nearest"), pre),
    ]
    assert cheapest(terms) == "post"


@pytest.mark.parametrize(("rows", "pays"), [(1, False), (32, False), (64, False), (512, True)])
def test_a_matrix_is_not_transposed_for_few_rows(rows: int, pays: bool) -> None:
    raster = torch.rand(rows, 784, generator=torch.Generator().manual_seed(0)) < 0.02
    assert events_pay(raster, 400) == pays
