import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lightning_accum.nn import RewardBaseline

REWARDS = st.one_of(st.floats(-5, 5), st.sampled_from([math.nan, math.inf]))


def naive(batches, decay, contexts, initial):
    """Errors and means, sample by sample, in Python's numbers."""
    means, errors = [initial] * contexts, []
    for reward, context, training in batches:
        errors += [r - means[c] for r, c in zip(reward, context, strict=True)]
        for c in set(context) if training else ():
            pairs = zip(reward, context, strict=True)
            here = [r for r, other in pairs if other == c and math.isfinite(r)]
            kept = decay ** len(here)
            means[c] = kept * means[c] + (1 - kept) * sum(here) / max(len(here), 1)
    return errors, means


@given(
    st.lists(
        st.tuples(st.lists(st.tuples(REWARDS, st.integers(0, 2)), max_size=6), st.booleans()),
        max_size=6,
    ),
    st.floats(0, 0.99),
    st.floats(-1, 1),
)
def test_it_is_the_formula(batches, decay, initial):
    baseline = RewardBaseline(decay, contexts=3, initial=initial).double()
    assert baseline.mean.tolist() == 3 * [initial]  # not rounded to float32 before
    parts = [([r for r, _ in batch], [c for _, c in batch], on) for batch, on in batches]
    found = [torch.zeros(0).double()]
    for reward, context, training in parts:
        given_ = torch.tensor(reward, dtype=torch.float64, requires_grad=True)
        found.append(baseline.train(training)(given_, torch.tensor(context, dtype=torch.long)))
        assert not found[-1].requires_grad
    errors, means = naive(parts, decay, 3, initial)
    torch.testing.assert_close(torch.cat(found).tolist(), errors, equal_nan=True)
    torch.testing.assert_close(baseline.mean.tolist(), means)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float16, torch.float64])
def test_rewards_of_any_shape_and_dtype(dtype):
    for shape in ((), (3,), (5, 3), (0,)):
        baseline = RewardBaseline(0.5, initial=0.25)
        error = baseline(torch.ones(shape, dtype=dtype))
        assert torch.equal(error, torch.full(shape, 0.75))
        assert bool(baseline.mean > 0.25) == bool(error.numel())


BOTH = torch.tensor([0, 1])


@pytest.mark.parametrize(("reward", "context", "error", "message"), [
    (torch.ones(2), BOTH * 2, ValueError, "between 0 and 1. Found values from 0 to 2"),
    (torch.ones(2), BOTH - 1, ValueError, "Found values from -1 to 0"),
    (torch.ones(2), BOTH[:1], ValueError, r"shape of `reward`, \[2\]. Found `context.shape = \(1,"),
    (torch.ones(2), BOTH.double(), TypeError, "should be a tensor of integers"),
    (torch.ones(2) * 1j, BOTH, TypeError, r"`reward` should be real\. Found torch.complex"),
])  # fmt: skip
def test_a_refused_call_changes_nothing(reward, context, error, message):
    baseline = RewardBaseline(contexts=2, initial=0.5)
    with pytest.raises(error, match=message):
        baseline(reward, context)
    assert baseline.mean.tolist() == [0.5, 0.5]
