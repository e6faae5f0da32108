"""Updates of one process among several: `python alone_run.py RANK RANKS PORT FOLDER`."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from run_ranks import join, leave
from torch import nn

from lightning_accum import Cell, CellSpec, Hebb, attach_updater
from lightning_accum.callbacks import FabricCellTrainer
from lightning_accum.optim import UpdateOptimizer, updates_as_gradients


def learn(name: str, rank: int) -> torch.Tensor:
    """The weight after three batches, which each process has of its own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2, bias=False), nn.ReLU())
    weight = model[0].weight
    batches = torch.rand(3, 4, 3, generator=torch.Generator().manual_seed(rank))
    rule = Hebb(0.1)
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    if name in ("fabric", "summed export"):
        learner = FabricCellTrainer(rule, {"a": CellSpec("0", "1")})
        learner.setup(model)
        for x in batches:
            with learner.batch():
                model(x)
            if name == "fabric":
                learner.step()
            else:
                learner.updates_as_gradients()
                plain.step()
                plain.zero_grad()
        learner.release()
        return weight.detach()
    rule.register_cell("a", Cell(model[0], model[1]))
    updater = attach_updater(model[0])
    optimizer = UpdateOptimizer(model.parameters(), updaters=[updater])
    for x in batches:
        model(x)
        rule()
        if name == "optimizer":
            optimizer.step()
        elif name == "own sum":
            parts = updater.weight.parts(weight)
            pos, neg = (torch.zeros_like(weight) if p is None else p.clone() for p in parts)
            dist.all_reduce(pos)
            dist.all_reduce(neg)
            updater.weight.replace(pos, neg)
            rule.update()
        elif name == "export":
            updates_as_gradients(updater)
            plain.step()
            plain.zero_grad()
        elif name == "every" or rank == 1:
            rule.update()
        else:
            rule.clear()
            updater.clear()
    return weight.detach()


def run(name: str, rank: int) -> dict[str, Any]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        weight = learn(name, rank)
    said = [str(each.message) for each in found if "processes drift apart" in str(each.message)]
    return {"weight": weight, "said": said}


if __name__ == "__main__":
    own, of, port = map(int, sys.argv[1:4])
    join(own, of, port)
    dist.init_process_group("gloo", rank=own, world_size=of)
    names = ("every", "second", "optimizer", "export", "fabric", "summed export", "own sum")
    torch.save({name: run(name, own) for name in names}, Path(sys.argv[4]) / f"{own} of {of}.pt")
    leave()
