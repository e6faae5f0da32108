from pathlib import Path

import pytest
import torch
from accumulators_two_processes import CHECKS
from streams import written
from two_processes import printed_by_two

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
