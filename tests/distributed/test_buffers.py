"""Thresholds that adapt to activity: each process' own, or averaged."""

import pytest
import torch
from buffers_run import Model
from callback_helpers import trainer
from torch.testing import assert_close
from torch.utils.data import DataLoader

from lightning_accum.callbacks import AverageBuffers

SCRIPT, RANKS = "buffers_run.py", (1, 2)


@pytest.mark.parametrize("name", ["one step a batch", "one step a batch, wrapped"])
def test_as_one_process_where_nothing_happens_between(found, name):
    alone, first, second = (ranks[name] for ranks in (found[1][0], *found[2]))
    for key in ("theta", "weight"):
        assert torch.equal(first[key], second[key])
        assert_close(first[key], alone[key], rtol=1e-9, atol=1e-12)
    assert float(alone["theta"].min()) > 0
    assert_close(2 * first["seen"], alone["seen"])  # a mean, of what each has summed
    assert torch.equal(first["seen"], second["seen"])


@pytest.mark.parametrize("name", ["one step a batch", "one step a batch, wrapped"])
def test_rewards_are_compared_with_those_of_all_processes(found, name):
    alone, first, second = (ranks[name] for ranks in (found[1][0], *found[2]))
    assert torch.equal(first["expected"], second["expected"])
    assert_close(first["expected"], alone["expected"], rtol=1e-12, atol=0)
    errors = torch.cat([first["errors"], second["errors"]], 1)
    assert_close(errors, alone["errors"], rtol=1e-12, atol=1e-12)
    assert alone["expected"].unique().numel() == 2


def test_within_a_batch_each_process_has_its_own(found):
    alone, first, second = (ranks["five steps a batch"] for ranks in (found[1][0], *found[2]))
    assert torch.equal(first["theta"], second["theta"])
    assert torch.equal(first["weight"], second["weight"])
    # no spike of the other half of the batch raises a threshold before its end
    assert_close(first["theta"], alone["theta"], rtol=0.1, atol=0)
    assert not torch.equal(first["theta"], alone["theta"])


def test_without_it_they_drift_apart(found):
    first, second = (rank["each its own"] for rank in found[2])
    assert not torch.allclose(first["theta"], second["theta"])
    assert torch.equal(first["weight"], second["weight"])  # all the same


def test_a_buffer_that_is_not_there(tmp_path):
    run = trainer(tmp_path, AverageBuffers(["lif.theta_"]))
    with pytest.raises(AttributeError, match=r"Found \['lif.theta_'\].*did you mean `lif.theta`"):
        run.fit(Model(1, True), DataLoader(torch.zeros(1, 5, 1, 5), batch_size=None))
