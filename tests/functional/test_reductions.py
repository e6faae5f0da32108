import pickle

import pytest
import torch

from lightning_accum.functional.reductions import reduction

KNOWN = {"sum": torch.sum, "mean": torch.mean, "amax": torch.amax, "amin": torch.amin}


def middle(stacked, dim):
    return stacked.median(dim).values


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
