"""Two processes of a DDP fit log the same values as one process with all samples."""

from torch.testing import assert_close

SCRIPT, RANKS = "logged_run.py", (1, 2)


def test_two_ranks_log_what_one_process_does(found):
    (alone,), (first, second) = found[1], found[2]
    assert set(alone["monitored"]) == {
        "change_ratio/enc.weight", "updates/enc.bias/ratio",
        *(f"updates/enc.{name}/{statistic}" for name in ("weight", "bias")
        for statistic in ("update_norm", "weight_norm", "zero_share", "nonfinite")),
    }  # fmt: skip
    assert_close(first, second, rtol=0, atol=0)
    assert_close(first, alone, rtol=1e-6, atol=0)
    assert float(alone["monitored"]["updates/enc.weight/update_norm"]) > 0
    assert 0 < float(alone["local"]["activity/enc/firing_rate"]) < 1
    assert 0.2 < float(alone["local"]["linear_probe/lif/train"]) < 1
    assert {"activity/enc/silent_share", "updates/enc/weight/ratio"} < set(alone["local"])
