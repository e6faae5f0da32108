"""BCM makes neurons selective, for one pattern in K with K, and Hebb's rule does not."""

import bcm_selectivity as science
import torch


def test_neurons_choose_patterns_by_bcm_and_are_alike_by_hebb():
    found = science.experiment(updates=3000, seed=1)
    begun, *_, learned = found["BCM"]
    assert science.selectivity(begun).max() < 0.3
    after = science.selectivity(learned)
    assert after.mean() > 0.85
    assert after.min() > 0.75
    assert len(learned.argmax(0).unique()) >= 5
    # the response is one over the share
    best, second, third, *rest = learned.sort(dim=0, descending=True).values
    selective = second < 1  # some still have to leave a neighbour
    assert selective.float().mean() > 0.5
    assert ((best[selective] - science.PATTERNS).abs() < 2).all()
    assert max(third.max(), *(r.max() for r in rest)) < 2.5
    first, *_, last = found["Hebb, constant length"]
    assert torch.equal(first, begun)
    assert science.selectivity(last).max() < science.selectivity(first).mean()
    assert (last.std(dim=1) / last.mean(dim=1)).max() < 0.05
