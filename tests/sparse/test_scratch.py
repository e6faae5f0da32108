import pytest
import torch

from lightning_accum.sparse import kernel_library as module
from lightning_accum.sparse.kernel_library import Scratch

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setattr(module, "_memory", module._Memory())


def test_tensors_of_one_block_are_apart_and_memory_is_used_again():
    with Scratch() as scratch:
        one = scratch.empty((3, 4), torch.float64, CPU).fill_(1.0)
        two = scratch.empty((2,), torch.float32, CPU).fill_(2.0)
        assert (one == 1.0).all()
        places = {one.data_ptr(), two.data_ptr()}
    assert len(places) == 2
    with Scratch() as scratch:
        again = scratch.empty((5, 2), torch.float32, CPU)
        assert again.data_ptr() == one.data_ptr()
        assert again.shape == (5, 2)
        with Scratch() as inner:
            assert inner.empty((1,), torch.float32, CPU).data_ptr() == two.data_ptr()


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 100)
    with Scratch() as scratch:
        for size in (60, 200, 30, 50):
            scratch.empty((size,), torch.uint8, CPU)
    assert [len(block) for block in module._memory.blocks] == [60, 30]


def test_work_memory_begins_with_a_cache_line_and_stays_unless_it_is_much(monkeypatch):
    monkeypatch.setattr(module, "_KEPT", 1 << 17)
    small = module.work_memory(1).value
    assert small % 64 == 0
    assert module.work_memory(1000).value == small
    for size in (1 << 16, 1 << 18):
        place = module.work_memory(size).value
        work = module._memory.work
        assert place % 64 == 0
        assert work.data_ptr() <= place
        assert place + size <= work.data_ptr() + len(work)
    module.work_memory(1)
    assert len(module._memory.work) < 1 << 17


def test_other_devices_see_to_themselves():
    with Scratch() as scratch:
        assert scratch.empty((3,), torch.float32, torch.device("meta")).is_meta
    assert module._memory.blocks == []
