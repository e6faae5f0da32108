import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum.functional.reductions import reduction

KNOWN = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin}


def middle(stacked, dim):
    return stacked.median(dim).values


@pytest.mark.parametrize("name", KNOWN)
@settings(deadline=None, derandomize=True, max_examples=30)
@given(n=st.integers(1, 6), seed=st.integers(0, 999))
def test_streaming_is_the_stacked_reduction(name, n, seed):
    how = reduction(name)
    stacked = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    total = stacked[0].clone()
    for value in stacked[1:]:
        assert how.merge(total, value) is total
    found = how.finish(total, n)
    torch.testing.assert_close(found, KNOWN[name](stacked, 0), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found, how.fn(stacked, 0), rtol=1e-12, atol=1e-12)


def test_names_functions_and_callables():
    for name, fn in KNOWN.items():
        how = reduction(name)
        assert how == reduction(fn)
        found = (how.name, how.adds, how.averages)
        assert found == (name, name in ("sum", "mean"), name == "mean")
    assert reduction() == reduction("sum")
    how = reduction(middle)
    assert (how.name, how.merge, how.adds, how.averages) == ("middle", None, False, False)
    assert how.fn(torch.tensor([[3.0], [1.0], [2.0]]), 0).tolist() == [2.0]
    for fn in (*KNOWN, middle):
        again = pickle.loads(pickle.dumps(reduction(fn)))
        assert again == reduction(fn)
        assert again.adds == reduction(fn).adds


def test_refuses_what_is_none():
    with pytest.raises(ValueError, match=r"one of \['amax', 'amin', 'mean', 'sum'\].*'median'"):
        reduction("median")
    with pytest.raises(TypeError, match="Found `int`"):
        reduction(3)
    for fn, error, words in (
        (lambda x, dim: x.mean(), ValueError, r"Found shape \(\) from \(1, 3, 4\)"),
        (lambda x, dim: x.max(dim), TypeError, "should give a tensor"),
        (lambda x, dim: x.average(dim), TypeError, "The reduction `<lambda>` fails"),
    ):
        with pytest.raises(error, match=words):
            reduction(fn).of(torch.ones(1, 3, 4))
