"""What several processes exchange: pending changes, states, and what they should have in common."""

import warnings
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from lightning_accum._checked_state import ANOTHER_VERSION, MAPPING, Kind, check_state, list_of
from lightning_accum._checks import is_number
from lightning_accum.cells.recorded_signals import follows_gradient
from lightning_accum.cells.state import CellState
from lightning_accum.cells.trainer import CellTrainer, params_of, updaters_of
from lightning_accum.distributed import world
from lightning_accum.distributed.shards import is_fsdp, is_sharded
from lightning_accum.updates import Updater


def shares_of(trainer: CellTrainer, ids: set[int] | None = None) -> list[world.Share]:
    """Returns the pending changes of a trainer's cells, and counts their samples from zero."""
    shares = []
    for updater, cells in updaters_of(trainer).values():
        for name in updater.names:
            param = updater.changes.target(name)
            if ids is None or id(param) in ids:
                samples = _samples(trainer, cells, name)
                shares.append(world.Share(updater.changes.pending[name], param.detach(), samples))
    return shares


def _samples(trainer: CellTrainer, cells: Sequence[str], param: str) -> int | None:
    """Returns the weight of a change in the mean over processes; ``None`` if changes are summed."""
    own = [cell for cell in cells if param in params_of(trainer, cell)]
    states = trainer.cell_states
    found = [states[cell] for cell in own if cell in states]
    # those of a trainer that keeps no states are not counted, and weigh alike
    samples = sum(state.samples.pop(param, 0) for state in found) + len(own) - len(found)
    if len(found) < len(own) or not own or any(state.reduction.averages for state in found):
        return samples
    return 1 if any(follows_gradient(state.rule) for state in found) else None


def check_exchangeable(trainer: CellTrainer) -> None:
    """Raises if several processes cannot compute the same update as one process would."""
    if world.processes() == 1:
        return
    for updater, cells in updaters_of(trainer).values():
        known: dict[str, str] = {}
        for cell in cells:
            if (state := trainer.cell_states.get(cell)) is None:
                continue
            how, params = state.reduction, state.options.params
            others = {known.setdefault(param, how.name) for param in params}
            if not how.adds or others != {how.name}:
                raise ValueError(
                    f"Argument `batch_reduction` of cell `{cell}` should be 'mean' or 'sum', the"
                    " same for all cells of a parameter, if several processes train together:"
                    " other reductions of the processes' batches cannot be combined. Found"
                    f" `{how.name}` for {sorted(params)} of {updater.changes.label}."
                )


def shard_holders(model: nn.Module, updaters: Iterable[Updater]) -> list[Any]:
    """Returns the modules whose ``unshard`` and ``reshard`` move the parameters of ``updaters``."""
    # All parameters are sharded afterwards.
    wrapped = {name: module for name, module in model.named_modules() if is_fsdp(module)}
    for module in wrapped.values():
        module.reshard()
    names = {id(module): name for name, module in model.named_modules()}
    found: dict[int, Any] = {}
    for updater in updaters:
        sharded = [name for name in updater.names if is_sharded(updater.changes.target(name))]
        path = names.get(id(updater.parent), "").split(".")
        above = [".".join(path[:depth]) for depth in range(len(path), -1, -1)]
        holder = next((wrapped[name] for name in above if name in wrapped), None)
        if sharded and holder is None:
            raise ValueError(
                f"Parameters of {updater.changes.label} that cells train should be plain, or"
                " sharded by `torch.distributed.fsdp.fully_shard`. Found DTensors of another kind:"
                f" {sharded}."
            )
        if sharded:
            found[id(holder)] = holder
    return list(found.values())


def pick_state(
    place: str, saved_state: Mapping[str, Any], kinds: Mapping[str, Kind]
) -> tuple[dict[str, Any], bool]:
    """Returns the state of this process, and whether it is its own or the first process's."""
    # Each process has its own if as many processes resume as have saved. Otherwise the first one
    # warns of what is lost.
    several = MAPPING.fits(saved_state) and "others" in saved_state
    more = {"others": list_of(MAPPING)} if several else {}
    check_state(place, saved_state, {**kinds, **more}, ANOTHER_VERSION)
    state = {key: value for key, value in saved_state.items() if key != "others"}
    others: list[dict[str, Any]] = saved_state.get("others", [])
    saved = len(others) + 1
    if others and saved != world.processes() and world.is_first():
        warnings.warn(
            f"A checkpoint of {saved} processes should be resumed by as many. Found"
            f" {world.processes()}, so that only the first process's state is used: what others had"
            " pending or carried is lost, and so is the state of their neurons. Resume with"
            f" {saved} processes, or ignore this for a checkpoint that was saved at the end of"
            " an epoch, without `carry`.",
            RuntimeWarning,
            stacklevel=3,
        )
    if world.is_first() or saved != world.processes():
        return state, world.is_first()
    own = others[world.rank() - 1]
    check_state(f"{place}, `others`,", own, {**kinds, "modules": MAPPING}, ANOTHER_VERSION)
    return own, True


_REMEDY = "let nothing of the callback or the model depend on the rank, except the data"
_REMEDIES = {
    "weights": "make the model from one seed in every process, as by `seed_everything(0)`, or load"
    " the same weights"
}


def check_processes_agree(cells: CellTrainer, **settings: object) -> None:
    """Raises an error in all processes if their cells, settings or weights differ."""
    if world.processes() == 1:
        return
    compare({"cells": _cells(cells), "settings of updates": settings, "weights": _weights(cells)})


def compare(own: Mapping[str, Mapping[str, object]]) -> None:
    """Compares descriptions of all processes, each of which has to call this."""
    known = world.of_all(own)
    for what in own:
        for rank, other in enumerate(known):
            if other[what] != known[0][what]:
                remedy = _REMEDIES.get(what, _REMEDY)
                raise RuntimeError(
                    f"All processes of a fit should have the same {what}. Found"
                    f" {_shown(known[0][what], other[what])} in process 0, and"
                    f" {_shown(other[what], known[0][what])} in process {rank}: {remedy}."
                )


def _cells(trainer: CellTrainer) -> dict[str, dict[str, object]]:
    """Returns the parameters' shapes and the numbers among the hyperparameters, by cell."""
    found: dict[str, dict[str, object]] = {}
    for name, (_, state) in trainer.named_cells:
        h = state.settings if isinstance(state, CellState) else {}
        numbers = {key: float(value) for key, value in h.items() if is_number(value)}
        found[name] = {"rule": trainer.title, **numbers}
        updater = trainer.updater_of(name)
        for param in params_of(trainer, name):
            found[name][param] = list(updater.changes.target(param).shape)
    return found


def _weights(trainer: CellTrainer) -> dict[str, str]:
    """Returns a checksum of each parameter of the cells, unless it is sharded."""
    found = {}
    for updater, cells in updaters_of(trainer).values():
        for name in updater.names:
            param = updater.changes.target(name).detach()
            if not is_sharded(param):
                data = param.cpu().contiguous().flatten().view(torch.uint8).numpy().data
                found[f"{cells[0]}.{name}"] = f"checksum {zlib.crc32(data):08x}"
    return found


def _shown(values: dict[str, object], other: dict[str, object]) -> str:
    """Returns the values that others do not have."""
    return str({key: value for key, value in values.items() if other.get(key, ()) != value})
