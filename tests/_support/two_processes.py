"""Checks that two processes make together: how they are started, and how a script makes them."""

import os
import sys
import warnings
from collections import Counter

import torch.distributed as dist
from _forked import Forked, run_together
from torch.utils._python_dispatch import TorchDispatchMode
from torchmetrics.utilities.prints import rank_zero_only


class Collectives(TorchDispatchMode):
    """Counts the collectives that are started, barriers too, by their kind."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def printed_by_two(script, folder):
    """The lines that `python script RANK RENDEZVOUS FOLDER` prints, and how it ended, by rank."""
    place = (folder / "rendezvous").as_uri()
    started = [Forked(script, [rank, place, folder], together=True) for rank in range(2)]
    return [
        [*done.stdout.splitlines(), f"ended with {done.returncode}"]
        for done in run_together(started, 120)
    ]


def make_all(checks):
    """Makes the checks as one of the two, and prints the name of each that holds."""
    warnings.simplefilter("error", UserWarning)
    rank_zero_only.rank = rank = int(sys.argv[1])  # who warns, for all
    dist.init_process_group("gloo", init_method=sys.argv[2], rank=rank, world_size=2)
    for check in checks:
        check()
        print(check.__name__, flush=True)
    dist.barrier()
    # Beside gloo's threads an exit now and then aborts.
    os._exit(0)
