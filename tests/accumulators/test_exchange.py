"""Bytes between processes, here of a group of one."""

import pytest
import torch
import torch.distributed as dist
from two_processes import Collectives

from lightning_accum.accumulators import Mean, Sum, synchronize
from lightning_accum.distributed.world import gather_bytes


@pytest.fixture(scope="module", autouse=True)
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("capacity", [0, 1, 8, 4096])
@pytest.mark.parametrize("over", [-1, 0, 1, 300])
def test_bytes_arrive_as_they_are_with_one_all_reduce_where_there_is_room(capacity, over):
    data = bytes(i % 251 for i in range(max(capacity + over, 0)))
    with Collectives() as mode:
        rows = gather_bytes(data, capacity, torch.device("cpu"))
    assert rows == [data]
    assert mode.counts == {"allreduce_": 1 if len(data) <= capacity else 2}


def test_what_is_synchronised_is_not_asked_for_again():
    mean, total = Mean(), Sum()
    for value in (1.0, 3.0):
        mean.update(value)
        total.update(value)
    with Collectives() as mode:
        synchronize([mean, total])
    assert mode.counts == {"allreduce_": 1}
    with Collectives() as mode:
        assert (mean.compute(), total.compute()) == (2.0, 4.0)
    assert not mode.counts
    mean.update(5.0)
    assert mean.compute() == 3.0
