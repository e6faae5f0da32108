import pytest
import torch

from lightning_accum.functional.reductions import reduction


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
