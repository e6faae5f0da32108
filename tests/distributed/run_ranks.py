"""Runs a script in several processes at once."""

import inspect
import logging
import os
import socket
import sys
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch.distributed as dist
from _forked import Forked, run_together
from callback_helpers import trainer as quiet
from round_trips import differences

from lightning_accum.callbacks import LocalDDPStrategy


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(script, ranks, folder):
    """What `python script RANK RANKS PORT FOLDER` saves as `RANK of RANKS.pt`, by rank."""
    port = free_port()
    started = [Forked(script, [rank, ranks, port, folder]) for rank in range(ranks)]
    for done in run_together(started, 240):
        assert done.returncode == 0, done.stderr
    files = [folder / f"{rank} of {ranks}.pt" for rank in range(ranks)]
    return [torch.load(file, weights_only=True) for file in files]


def as_one(found, pick, rtol=1e-9, atol=1e-11):
    """Returns what one process saved; several have it nearly, and each other's to the bit."""
    alone, first, *others = (pick(saved) for ranks in found.values() for saved in ranks)
    assert others
    assert not any(differences(first, other) for other in others)
    torch.testing.assert_close(first, alone, rtol=rtol, atol=atol)
    return alone


def share(main, wait=True):
    """Runs ``main(rank, ranks, folder)`` in a script that is one of several; saves the result."""
    rank, ranks, port = map(int, sys.argv[1:4])
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
    os.environ |= {"WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank)}
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    torch.set_num_threads(1)
    folder = Path(sys.argv[4])
    torch.save(main(rank, ranks, folder), folder / f"{rank} of {ranks}.pt")
    if wait and dist.is_initialized():
        dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # beside gloo's threads another exit now and then aborts


def trainer(ranks, *callbacks, epochs=2, **options):
    """One of several that see their own samples, and say nothing."""
    strategy = LocalDDPStrategy(process_group_backend="gloo") if ranks > 1 else "auto"
    shared = {"strategy": strategy, "devices": ranks, "use_distributed_sampler": False}
    return quiet(None, *callbacks, **{**shared, "max_epochs": epochs, **options})


def resuming(path):
    """Options of a fit that goes on from a checkpoint, if there is one, without unpickling code."""
    if path is None or "weights_only" not in inspect.signature(pl.Trainer.fit).parameters:
        return {"ckpt_path": path}  # Lightning asks how to read it since 2.6
    return {"ckpt_path": path, "weights_only": True}
