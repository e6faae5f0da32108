"""Two processes of a DDP fit log the same values as one process with all samples."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close
from two_ranks import main


def run_two(folder: Path) -> list[dict[str, torch.Tensor]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = Path(__file__).with_name("two_ranks.py")
    shared = {**os.environ, "OMP_NUM_THREADS": "1", "WORLD_SIZE": "2"}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(script), "2", str(folder)],
            env={**shared, "LOCAL_RANK": str(rank)},
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
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    return [torch.load(folder / f"2-{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no distributed package")
def test_two_ranks_log_what_one_process_does(tmp_path: Path) -> None:
    main(1, tmp_path)
    alone = torch.load(tmp_path / "1-0.pt", weights_only=True)
    first, second = run_two(tmp_path)
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
