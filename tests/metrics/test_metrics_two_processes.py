"""Two processes report what one does that sees everything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from metrics_two_processes import checks


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    if not torch.distributed.is_available():
        pytest.skip("torch has no distributed package")
    rendezvous = (tmp_path_factory.mktemp("two_processes") / "rendezvous").as_uri()
    script = Path(__file__).with_name("metrics_two_processes.py")
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error::UserWarning", str(script), str(rank), rendezvous],
            env={**os.environ, "OMP_NUM_THREADS": "1", "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        f"{output}ended with {process.returncode}"
        for process, output in zip(processes, outputs, strict=True)
    ]


@pytest.mark.parametrize("check", [check.__name__ for check in checks()])
def test_two_real_processes(outputs, check):
    assert all(check in output.splitlines() for output in outputs), "\n".join(outputs)


def test_both_end_well(outputs):
    assert [output.splitlines()[-1] for output in outputs] == ["ended with 0"] * 2, outputs
