from pathlib import Path

import pytest
import torch
from accumulator_cases import written
from accumulators_two_processes import CHECKS
from two_processes import Collectives, printed_by_two

from lightning_accum.accumulators import Mean, Sum, synchronize
from lightning_accum.distributed.world import gather_bytes

SCRIPT = Path(__file__).with_name("accumulators_two_processes.py")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    if not torch.distributed.is_available():
        pytest.skip("torch has no distributed package")
    folder = tmp_path_factory.mktemp("two_processes")
    return printed_by_two(SCRIPT, folder), folder / "events"


@pytest.mark.parametrize("line", [*(check.__name__ for check in CHECKS), "ended with 0"])
def test_two_real_processes(run, line):
    printed, _ = run
    assert all(line in lines for lines in printed), printed


def test_one_of_them_wrote(run):
    printed, folder = run
    assert folder.is_dir(), printed
    assert len(list(folder.iterdir())) == 1
    assert [step for step, _ in written(folder)["acc"]] == [0, 1]


@pytest.mark.parametrize("capacity", [0, 1, 8, 4096])
@pytest.mark.parametrize("over", [-1, 0, 1, 300])
def test_bytes_arrive_as_they_are_with_one_all_reduce_where_there_is_room(capacity, over, group):
    data = bytes(i % 251 for i in range(max(capacity + over, 0)))
    with Collectives() as mode:
        rows = gather_bytes(data, capacity, torch.device("cpu"))
    assert rows == [data]
    assert mode.counts == {"allreduce_": 1 if len(data) <= capacity else 2}


def test_what_is_synchronised_is_not_asked_for_again(group):
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
