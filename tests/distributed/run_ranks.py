"""Runs a script in several processes at once."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(script: Path, ranks: int, folder: Path) -> list[dict[str, Any]]:
    """What `python script RANK RANKS PORT FOLDER` saves as `RANK of RANKS.pt`, by rank."""
    port = str(free_port())
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen(
            [sys.executable, script, str(rank), str(ranks), port, folder],
            stderr=subprocess.PIPE, text=True, env=env,
        )
        for rank in range(ranks)
    ]  # fmt: skip
    try:
        for process in started:
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors
    finally:
        for process in started:
            process.kill()
    return [torch.load(folder / f"{rank} of {ranks}.pt") for rank in range(ranks)]


def leave() -> None:
    """Ends a script when all are done, without what now and then aborts an exit beside gloo."""
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def join(rank: int, ranks: int, port: int) -> None:
    """Tells Lightning, in a script, that it is one of several."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "NODE_RANK": "0",
    }
