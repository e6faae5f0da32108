"""Components of a stream that drifts: what the stream is, and what follows it."""

from itertools import pairwise

import drifting_pca as science
import pytest
import torch


def test_the_stream_has_the_covariance_that_it_says_and_turns():
    batches = list(science.stream(400, seed=0))
    covariances = torch.stack([truth for _, truth in batches])
    samples = torch.cat([x for x, _ in batches])
    found = samples.T @ samples / len(samples)
    assert (found - covariances.mean(0)).norm() < 0.1 * found.norm()
    values = torch.linalg.eigvalsh(covariances[[0, -1]])
    torch.testing.assert_close(values[0], values[1], rtol=1e-3, atol=1e-4)  # only directions turn
    assert (covariances[0] - covariances[-1]).norm() > 0.5 * covariances[0].norm()
    again = next(iter(science.stream(1, seed=0)))
    assert torch.equal(again[0], batches[0][0])


def test_the_best_directions_have_all_that_eight_can_have(monkeypatch):
    truths = iter([truth for _, truth in science.stream(5, seed=3)])
    ideal = lambda _: torch.linalg.eigh(next(truths)).eigenvectors[:, -science.KEPT :].T  # noqa: E731
    torch.testing.assert_close(science.follow(ideal, 5, 3), torch.full((5,), 100.0))


def test_the_decomposition_is_exact_where_eight_directions_are_all():
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(science.KEPT, science.SIZE, generator=generator)
    small, large = science.decomposition(0.1), science.covariance(0.1)
    for _ in range(30):
        x = torch.randn(science.BATCH, science.KEPT, generator=generator) @ few
        one, other = small(x), large(x)
    torch.testing.assert_close(one.T @ one, other.T @ other, rtol=0, atol=1e-3)


def test_sangers_rule_follows_and_what_does_not_forget_falls_behind(monkeypatch):
    monkeypatch.setattr(science, "TURN", 0.02)
    rule, start = (science.follow(make(0.3), 250, 1)[-50:].mean() for make in (
        science.sanger, science.LEARNERS["components of the start"][0]
    ))  # fmt: skip
    assert rule > 95
    assert start < 60


@pytest.mark.parametrize("last", [1, 3])
def test_components_of_the_start_stay(last):
    learner = science.incremental(0.0, last=last)
    seen = [learner(x) for x, _ in science.stream(5, seed=0)]
    same = [torch.equal(a, b) for a, b in pairwise(seen)]
    assert same == [i + 1 >= last for i in range(4)]
