"""Under FSDP2 two processes, each with a shard of every parameter, learn what one learns."""

import pytest
import torch
import torch.distributed.fsdp
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.testing import assert_close

SCRIPT, RANKS = "fsdp_run.py", (1, 2)

if not hasattr(torch.cpu.Stream, "record_event"):
    pytest.skip("torch 2.6 does not run FSDP2 on a CPU", allow_module_level=True)

FITS = ("AdaBelief", "Noam", "RAdam", "alone", "of the whole")
RESUMED = ("resumed from one file", "resumed from distributed")


@pytest.mark.parametrize("name", [*FITS, *RESUMED])
def test_as_one_process_with_whole_parameters(found, name):
    alone, first, second = (ranks[name] for ranks in (found[1][0], *found[2]))
    assert first.keys() == second.keys() == alone.keys()
    for key, value in alone.items():
        if key.startswith("net."):
            assert torch.equal(first[key], second[key])
            assert_close(first[key], value, rtol=1e-9, atol=1e-11)
    assert first["steps"] == second["steps"] == alone["steps"] > 0
    updates = [key for key in alone["logged"] if key.startswith("updates/")]
    assert len(updates) > 10
    for key in updates:
        assert float(first["logged"][key]) == float(second["logged"][key])
        assert_close(first["logged"][key], alone["logged"][key])


def test_a_resumed_fit_ends_as_one_that_was_left_alone(found):
    for name in RESUMED:
        for key, value in found[2][0]["AdaBelief"].items():
            if key.startswith("net."):
                assert torch.equal(found[2][0][name][key], value)


@pytest.mark.usefixtures("found")
def test_pictures_are_of_whole_parameters(folder):
    histograms = []
    for ranks in (1, 2):
        events = EventAccumulator(str(folder / str(ranks)), {"histograms": 0, "images": 0})
        events.Reload()
        tags = events.Tags()
        assert "fields/enc/weight" in tags["images"]
        assert {f"{of}/enc/weight" for of in ("weights", "updates")} <= set(tags["histograms"])
        histograms.append([
            (each.step, each.histogram_value.num, round(each.histogram_value.sum, 4))
            for tag in ("weights/enc/weight", "updates/enc/weight")
            for each in events.Histograms(tag)
        ])  # fmt: skip
    assert histograms[0] == histograms[1]
    assert len(histograms[0]) > 2


def test_every_fit_has_learned(found):
    heads = {float(found[1][0][name]["net.head.weight"].sum()) for name in FITS}
    assert len(heads) == len(FITS) - 1  # two of the fits train no head
    for name in FITS:
        assert all(float(found[1][0][name]["logged"][f"updates/enc/weight/{of}_norm"]) > 0
                   for of in ("update", "pos", "neg"))  # fmt: skip


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("rank", [0, 1])
def test_shards_of_rows_and_of_columns(found, rank, dim):
    one = found[2][rank][f"by hand, {dim}"]
    change = torch.arange(20.0, dtype=torch.float64).reshape(5, 4) / 20
    start = torch.full((5, 4), 0.25, dtype=torch.float64)
    bounded = start + 0.5 * (0.75 * change - 0.5 * change)
    rows = 2.0 * bounded / bounded.sum(1, keepdim=True)
    assert_close(one["constrained"], rows.clamp(max=0.5), rtol=1e-12, atol=0)
    assert_close(one["gradient"], start + 0.5 * change, rtol=1e-12, atol=0)
    assert_close(one["pending"], change, rtol=0, atol=0)  # still, after a checkpoint
    assert "weight of `FSDPLinear` holds NaN" in one["raised"]  # in one process' shard
    assert one["versions"] > 0  # of the whole, which autograd has saved
    count, weight = one["skipped"]
    assert count == 1
    assert torch.equal(weight, start)


def test_other_ways_to_shard_are_refused(found):
    for rank in found[2]:
        assert "sharded by `torch.distributed.fsdp.fully_shard`" in rank["parallel otherwise"]
