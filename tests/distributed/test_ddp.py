"""Several processes with a share of each batch learn what one learns with the whole."""

import pytest
import torch
from ddp_run import OWN_WAYS, runs

SCRIPT, RANKS = "ddp_run.py", (1, 3)

NAMES = [name for name, *_ in runs()]


@pytest.mark.parametrize("name", NAMES)
def test_as_one_process_with_the_whole_batch(found, name):
    (alone,), several = found[1], found[3]
    for other in several[1:]:
        for one, two in zip(several[0][name], other[name], strict=True):
            assert torch.equal(one, two)
    if not name.startswith(OWN_WAYS):
        for one, two in zip(alone[name], several[0][name], strict=True):
            torch.testing.assert_close(one, two, rtol=1e-9, atol=1e-11)


def test_every_rule_has_learned(found):
    weights = {float(weight.sum()) for weight, _ in found[1][0].values()}
    assert len(weights) == len(NAMES)  # each has done something else


@pytest.mark.usefixtures("found")
def test_a_maximum_over_samples_is_refused(folder):
    for rank in range(3):
        said = (folder / f"refused by {rank}").read_text()
        assert "`batch_reduction` of cell `enc` should be 'mean' or 'sum'" in said
