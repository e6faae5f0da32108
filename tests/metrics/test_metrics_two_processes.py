"""Two processes report what one does that sees everything."""

from pathlib import Path

import pytest
import torch
from metrics_two_processes import CHECKS
from two_processes import printed_by_two


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    if not torch.distributed.is_available():
        pytest.skip("torch has no distributed package")
    script = Path(__file__).with_name("metrics_two_processes.py")
    return printed_by_two(script, tmp_path_factory.mktemp("two_processes"))


@pytest.mark.parametrize("line", [*(check.__name__ for check in CHECKS), "ended with 0"])
def test_two_real_processes(printed, line):
    assert all(line in lines for lines in printed), printed
