import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum.metrics.max_rate_classifier import (
    assign_classes,
    assigned_votes,
    bayes_votes,
    class_rate_sums,
    predict_class,
    proportional_votes,
)


@settings(deadline=None)
@given(
    batch=st.integers(0, 6), neurons=st.integers(1, 5), classes=st.integers(1, 4),
    seed=st.integers(0, 2**16),
)  # fmt: skip
def test_assigned_readout_equals_a_loop(batch, neurons, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    rates = torch.randint(0, 5, (batch, neurons), generator=generator)
    labels = torch.randint(0, classes, (batch,), generator=generator)

    mean = [[0.0] * neurons for _ in range(classes)]
    for c in range(classes):
        own = [rates[b].tolist() for b in range(batch) if labels[b] == c]
        if own:
            mean[c] = [sum(column) / len(own) for column in zip(*own, strict=True)]
    sums, counts = class_rate_sums(rates, labels, classes)
    means = sums / counts.clamp(min=1).unsqueeze(1)
    assert means.tolist() == [pytest.approx(row) for row in mean]
    # From here on with what was found: a tie in float32 need not be one in float64.
    columns = means.T.tolist()
    assigned = [column.index(max(column)) if max(column) > 0 else -1 for column in columns]
    assert assign_classes(means).tolist() == assigned

    samples = torch.rand(7, neurons, generator=generator)
    expected = []
    for sample in samples.tolist():
        scores = {}
        for c in sorted(set(assigned) - {-1}):
            own = [r for r, a in zip(sample, assigned, strict=True) if a == c]
            scores[c] = sum(own) / len(own)
        expected.append(max(scores, key=scores.__getitem__) if scores else -1)
    assert predict_class(samples, assigned_votes(means)).tolist() == expected


def test_proportional_votes_by_hand():
    # The first neuron answers both classes alike, the second the second class alone.
    votes = proportional_votes(torch.tensor([[0.4, 0.0, 0.0], [0.4, 0.2, 0.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(
        votes, torch.tensor([[1.0, 0.0, 0.0], [1 / 3, 2 / 3, 0.0], [0.0, 0.0, 0.0]])
    )
    # Scores: 3 to 2/3·3 + 2/3·0 = 1; then 1 to 1/3 + 2/3·3.
    assert predict_class(torch.tensor([[3.0, 0.0, 9.0], [1.0, 3.0, 0.0]]), votes).tolist() == [0, 1]


@settings(deadline=None)
@given(
    batch=st.integers(0, 6), neurons=st.integers(1, 5), classes=st.integers(1, 4),
    unit=st.sampled_from([1e-3, 1.0, 10.0]), seed=st.integers(0, 2**16),
)  # fmt: skip
def test_bayes_readout_is_the_likelihood_of_poisson_counts(batch, neurons, classes, unit, seed):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 4, (batch, neurons), generator=generator)
    labels = torch.randint(0, classes, (batch,), generator=generator)
    samples = torch.randint(0, 6, (7, neurons), generator=generator)

    mean, size = {}, {}
    for c in range(classes):
        own = [counts[b].tolist() for b in range(batch) if labels[b] == c]
        if sum(map(sum, own)):
            mean[c] = [sum(column) / len(own) for column in zip(*own, strict=True)]
            size[c] = len(own)
    average = [sum(m[n] for m in mean.values()) / max(len(mean), 1) for n in range(neurons)]
    fired = [n for n in range(neurons) if average[n] > 0]

    def log_likelihood(sample, c):
        total = 0.0
        for n in fired:
            rate = (mean[c][n] * size[c] + average[n]) / (size[c] + 1)
            total += sample[n] * math.log(rate) - rate - math.lgamma(sample[n] + 1)
        return total

    # Counts in another unit, such as Hz, are as likely.
    sums, sizes = class_rate_sums(unit * counts, labels, classes)
    predicted = predict_class(unit * samples, *bayes_votes(sums.double(), sizes)).tolist()
    for sample, found in zip(samples.tolist(), predicted, strict=True):
        likelihoods = {c: log_likelihood(sample, c) for c in mean}
        assert found in (likelihoods or {-1: 0.0})
        if likelihoods:
            assert likelihoods[found] >= max(likelihoods.values()) - 1e-4


def test_a_class_without_votes_never_wins():
    votes = torch.tensor([[0.0, 0.0], [0.5, 0.5]])
    assert predict_class(torch.zeros(2, 2), votes).tolist() == [1, 1]
    assert predict_class(torch.zeros(2, 2), torch.zeros(3, 2)).tolist() == [-1, -1]
    none = bayes_votes(torch.zeros(3, 2), torch.tensor([4, 0, 1]))
    assert predict_class(torch.ones(2, 2), *none).tolist() == [-1, -1]
    # Both votes are zero, and still each class can win.
    alike = bayes_votes(torch.ones(2, 2), torch.tensor([1, 1]))
    assert predict_class(torch.ones(2, 2), *alike).tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_labels_of_every_integer_dtype(dtype):
    sums, counts = class_rate_sums(torch.ones(2, 1), torch.tensor([1, 1], dtype=dtype), 2)
    assert sums.tolist() == [[0.0], [2.0]]
    assert counts.tolist() == [0, 2]
