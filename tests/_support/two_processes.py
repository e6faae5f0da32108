"""Checks that two processes make together: how they are started, and how a script makes them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode


class Collectives(TorchDispatchMode):
    """Counts the collectives that are started, barriers too, by their kind."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "c10d":
            self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def printed_by_two(script: Path, folder: Path) -> list[list[str]]:
    """The lines that `python script RANK RENDEZVOUS FOLDER` prints, and how it ended, by rank."""
    command = [sys.executable, "-W", "error::UserWarning", str(script)]
    processes = [
        subprocess.Popen(
            [*command, str(rank), (folder / "rendezvous").as_uri(), str(folder)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        texts = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        [*text.splitlines(), f"ended with {process.returncode}"]
        for text, process in zip(texts, processes, strict=True)
    ]


def make_all(checks: list[Callable[[], None]]) -> None:
    """Makes the checks as one of the two, and prints the name of each that holds."""
    dist.init_process_group("gloo", init_method=sys.argv[2], rank=int(sys.argv[1]), world_size=2)
    for check in checks:
        check()
        print(check.__name__, flush=True)
    dist.barrier()
    # Beside gloo's threads an exit now and then aborts.
    os._exit(0)
