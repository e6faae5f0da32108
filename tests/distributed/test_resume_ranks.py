"""Several processes that stop in the middle of a group go on as if they had not."""

import pytest
import torch
from values import differences

from lightning_accum import STDP, CellSpec
from lightning_accum.callbacks import CellTrainerCallback

SCRIPT, RANKS = "resume_run.py", (1, 2)  # two go on from one


@pytest.mark.parametrize("names", [("whole", "resumed"), ("modulated", "modulated, resumed")])
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_process_ends_with_every_bit(found, ranks, names):
    for mine in found[ranks]:
        whole, resumed = (mine[name] for name in names)
        assert differences(whole, resumed) == []
        assert ("released" in str(whole)) == ("modulated" in names)


def test_processes_had_something_of_their_own(found):
    one, two = (mine["whole"]["model"] for mine in found[2])
    differ = {at.split("'")[1] for at in differences(one, two)}
    assert {"encoder._extra_state", "lif.theta", "lif._extra_state"} <= differ
    assert "fc.weight" not in differ


def test_what_one_process_had_pending_counts_once_where_two_go_on(found):
    alone = found[1][0]["of one"]["model"]["fc.weight"]
    for mine in found[2]:
        torch.testing.assert_close(
            mine["of one"]["model"]["fc.weight"], alone, rtol=1e-9, atol=1e-12
        )


def test_a_resume_by_fewer_processes_is_told(found):
    saved = found[2][0]["whole"]["callback"]
    callback = CellTrainerCallback(
        STDP(0.03, -0.02, time_dim=0, batch_reduction="mean"),
        cells={"enc": CellSpec("fc", "lif")},
        apply_every_n_batches=3,
        carry=True,
    )
    others = [{**found[2][1]["whole"]["callback"], "modules": {}}]
    with pytest.warns(RuntimeWarning, match="of 2 processes should .* Found 1, so that only the"):
        callback.load_state_dict({**saved, "others": others})
    callback.load_state_dict({**saved, "others": []})  # of one process
