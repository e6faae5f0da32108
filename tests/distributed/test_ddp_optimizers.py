"""Optimizers in two processes end as in one, also where they are handed updates as gradients."""

import pytest
import torch
from ddp_optimizers_run import FITS
from torch.testing import assert_close

SCRIPT, RANKS = "ddp_optimizers_run.py", (1, 2)


@pytest.mark.parametrize("name", FITS)
def test_as_one_process_with_the_whole_batch(found, name):
    alone, first, second = (ranks[name] for ranks in (found[1][0], *found[2]))
    for key, value in alone["params"].items():
        assert torch.equal(first["params"][key], second["params"][key])
        assert_close(first["params"][key], value, rtol=1e-9, atol=1e-11)
        trained = name != "AdaBelief without a head" or key.startswith("fc")
        assert torch.equal(value, alone["start"][key]) != trained
    assert_close(first["state"], alone["state"], rtol=1e-9, atol=1e-11)
    assert_close(first["state"], second["state"], rtol=0, atol=0)
    (group,) = alone["state"]["param_groups"]
    assert group["lr"] == pytest.approx((0.3 if "Noam" in name else 0.1) * 0.8**8)
    assert first["steps"] == second["steps"] == alone["steps"] == 8


def test_what_is_handed_over_is_stepped_otherwise_than_what_is_applied(found):
    fits = found[1][0]
    weights = [fits[name]["params"]["fc.weight"] for name in ("AdaBelief", "AdaBelief for both")]
    assert not torch.allclose(*weights)
    assert torch.equal(weights[0], fits["Noam"]["params"]["fc.weight"])
