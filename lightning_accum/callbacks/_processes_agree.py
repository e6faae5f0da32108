"""The checks that all processes of a fit have the same cells, settings and weights."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

import lightning.pytorch as pl
import torch

from lightning_accum._checks import is_number
from lightning_accum.callbacks._host import CellHost
from lightning_accum.callbacks._update_plan import UpdatePlan
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.distributed.shards import is_sharded
from lightning_accum.distributed.world import CAPACITY, gather_bytes, processes

_REMEDY = "let nothing of the callback or the model depend on the rank, except the data"
_REMEDIES = {
    "weights": "make the model from one seed in every process, as by `seed_everything(0)`, or load"
    " the same weights"
}


def check_processes_agree(host: CellHost, plan: UpdatePlan, pl_module: pl.LightningModule) -> None:
    """Compares the cells and the settings of all processes, each of which has to call this.

    Args:
        host: the host of the cells.
        plan: when updates are applied, and with which factor.
        pl_module: the LightningModule in a fit.

    Raises:
        RuntimeError: in all processes, if their cells, settings or weights differ.
    """
    if processes() == 1:
        return
    trainer = pl_module.trainer
    updates = {"lr": plan.lr, "apply_every_n_batches": plan.batches_between(trainer)}
    compare(
        {"cells": _cells(host), "settings of updates": updates, "weights": _weights(host)},
        pl_module.device,
    )


def check_cells_alike(host: CellHost) -> None:
    """Compares the cells of all processes in a loop, in each of which this is called.

    Args:
        host: the host of the cells.

    Raises:
        RuntimeError: in all processes, if they train other cells, or from other weights.
    """
    if processes() == 1:
        return
    found = (u.target(name).device for u in host.updaters.values() for name in u.names)
    device = next(found, torch.device("cpu"))
    compare({"cells": _cells(host), "weights": _weights(host)}, device)


def compare(
    own: Mapping[str, Mapping[str, object]], device: torch.device, **rest: object
) -> list[dict[str, Any]]:
    """Compares descriptions of all processes, each of which has to call this.

    Args:
        own: descriptions of what this process has, which should be those of the others.
        device: the device of the exchange.
        **rest: what others should know too, and need not have.

    Returns:
        What each process has, by rank.

    Raises:
        RuntimeError: in all processes, if descriptions differ.
    """
    rows = gather_bytes(json.dumps({**own, **rest}).encode(), CAPACITY, device)
    known = [json.loads(row) for row in rows]
    for what in own:
        for rank, other in enumerate(known):
            if other[what] != known[0][what]:
                remedy = _REMEDIES.get(what, _REMEDY)
                raise RuntimeError(
                    f"All processes of a fit should have the same {what}. Found"
                    f" {_shown(known[0][what], other[what])} in process 0, and"
                    f" {_shown(other[what], known[0][what])} in process {rank}: {remedy}."
                )
    return known


def _cells(host: CellHost) -> dict[str, dict[str, object]]:
    """Returns the parameters' shapes and the numbers among the hyperparameters, by cell."""
    found: dict[str, dict[str, object]] = {}
    for name, (_, state) in host.trainer.named_cells:
        h = vars(getattr(state, "hyperparameters", Hyperparameters()))
        numbers = {key: float(value) for key, value in h.items() if is_number(value)}
        found[name] = {"rule": type(host.trainer).__name__, **numbers}
        updater = host.trainer.updater_of(name)
        for param in host.trainer.params_of(name):
            found[name][param] = list(updater.target(param).shape)
    return found


def _weights(host: CellHost) -> dict[str, str]:
    """Returns a checksum of each parameter of the cells, unless it is sharded."""
    found = {}
    for cell, updater in host.updaters.items():
        for name in updater.names:
            param = updater.target(name).detach()
            if not is_sharded(param):
                data = param.cpu().contiguous().flatten().view(torch.uint8).numpy().data
                found[f"{cell}.{name}"] = f"checksum {zlib.crc32(data):08x}"
    return found


def _shown(values: dict[str, object], other: dict[str, object]) -> str:
    """Returns the values that others do not have."""
    return str({key: value for key, value in values.items() if other.get(key, ()) != value})
