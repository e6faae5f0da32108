"""Runs a script in several processes at once."""

from __future__ import annotations

import inspect
import os
import socket
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from _forked import Forked, run_together

from lightning_accum.callbacks import LocalDDPStrategy


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(script: Path, ranks: int, folder: Path) -> list[dict[str, Any]]:
    """What `python script RANK RANKS PORT FOLDER` saves as `RANK of RANKS.pt`, by rank."""
    port = free_port()
    started = [Forked(script, [rank, ranks, port, folder]) for rank in range(ranks)]
    for done in run_together(started, 240):
        assert done.returncode == 0, done.stderr
    files = [folder / f"{rank} of {ranks}.pt" for rank in range(ranks)]
    return [torch.load(file, weights_only=True) for file in files]


def leave() -> None:
    """Ends a script when all are done.

    Beside gloo's threads an exit now and then aborts.
    """
    if dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def trainer(ranks: int, *callbacks: pl.Callback, epochs: int = 2) -> pl.Trainer:
    """One of several that see their own samples, and say nothing."""
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        devices=ranks,
        strategy=LocalDDPStrategy(process_group_backend="gloo") if ranks > 1 else "auto",
        use_distributed_sampler=False,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        callbacks=list(callbacks),
    )


def resuming(path: Path | None) -> dict[str, Any]:
    """Options of a fit that goes on from a checkpoint, if there is one, without unpickling code."""
    if path is None or "weights_only" not in inspect.signature(pl.Trainer.fit).parameters:
        return {"ckpt_path": path}  # Lightning asks how to read it since 2.6
    return {"ckpt_path": path, "weights_only": True}


def join(rank: int, ranks: int, port: int) -> None:
    """Tells Lightning, in a script, that it is one of several."""
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank),
        "NODE_RANK": "0",
    }
