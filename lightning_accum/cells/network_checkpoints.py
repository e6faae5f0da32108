"""Checkpoints of networks that processes divide: each writes its share, and any number resumes."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from lightning_accum import _checks as checks
from lightning_accum._extra_state import EXTRA, pack, unpack
from lightning_accum.cells.populations import Ends, Populations, name_of
from lightning_accum.cells.rule_trainer import RuleTrainer
from lightning_accum.distributed.world import of_all, processes, rank
from lightning_accum.engine.state_keys import StateKey

Found = TypeVar("Found")
State: TypeAlias = dict[str, Any]


def save_share(
    module: nn.Module, folder: str | Path, checkpoint: Mapping[str, Any] | None = None
) -> None:
    """Writes this process's share of a network and its trainers into a folder.

    Every process has to call it, between sequences; all have to see the folder.

    Args:
        module: contains one :class:`~lightning_accum.Populations` with ``split=True``, and the
            trainers of its cells.
        folder: is made if it does not exist.
        checkpoint: a checkpoint of Lightning, with the ``state_dict`` of the module.
    """
    share = {**(checkpoint or {"state_dict": module.state_dict()}), "own": _ranges(module)}
    count = processes()
    file = Path(folder) / f"{rank()} of {count}.pt"
    file.parent.mkdir(parents=True, exist_ok=True)
    torch.save(share, part := file.with_suffix(".part"))
    of_all(None)  # waits: the files of before stay until all have written theirs
    part.replace(file)
    for old in file.parent.glob("* of *.pt") if rank() == 0 else ():
        if not old.stem.endswith(f" of {count}"):
            old.unlink()
    of_all(None)


def load_shares(module: nn.Module, folder: str | Path) -> None:
    """Loads what :func:`save_share` wrote in any number of processes.

    Args:
        module: made by the same program.
        folder: that was written.

    Raises:
        FileNotFoundError: if a share is missing.
    """
    module.load_state_dict(read_share(module, folder)["state_dict"])


def read_share(module: nn.Module, folder: str | Path, weights_only: bool = True) -> State:
    """Returns the checkpoint of this process, from those of any number of processes."""
    # Those of another number hold what a network has between sequences: no recorded steps.
    files = sorted(Path(folder).glob("* of *.pt"), key=lambda file: int(file.stem.split()[0]))
    if {file.stem.split()[2] for file in files} != {str(len(files))}:
        raise FileNotFoundError(
            f"Folder `{folder}` should have the shares of all processes of one run, as"
            f" `0 of 2.pt`. Found {[file.name for file in files]}."
        )
    every = [torch.load(file, "cpu", mmap=True, weights_only=weights_only) for file in files]
    own: list[State] = [share for share in every if share["own"] == _ranges(module)]
    return own[0] if own else {**every[0], "state_dict": _own_state(module, every)}


def splits(module: nn.Module) -> list[str]:
    """Returns the parameters and buffers of which each process has a share, by name."""
    return [
        at + name
        for at, network in _all_of(module, Populations)
        if network.exchange
        for name, _ in (*network.named_parameters(), *network.named_buffers())
    ]


def _own_state(module: nn.Module, shares: Sequence[State]) -> State:
    """Returns the state of this process's share, from the shares of another number of processes."""
    prefix, network = _network_of(module)
    states, moves = [share["state_dict"] for share in shares], {}
    found = dict(states[0])
    for name, own in network.own.items():
        for key in [key for key in found if key.startswith(f"{prefix}neurons.{name}.")]:
            values = [state[key] for state in states]
            if key.endswith(EXTRA):
                found[key] = pack(_cut([unpack(value, key) for value in values], own))
            else:
                found[key] = _cut(values, own)
    for ends in network.delays:
        index, moves[network.cell(*ends)] = _synapses(network, ends, prefix, shares)
        found |= index
    for at, trainer in _all_of(module, RuleTrainer):
        for name, (cell, _) in trainer.named_cells:
            key = f"{at}_states.{name}.{EXTRA}"
            each = [unpack(state[key], key) for state in states]
            carried = {}
            for text in each[0]["carried"]:
                values = [one["carried"][text] for one in each]
                carried[text] = moves[cell](StateKey.parse(text).kind, values)
            found[key] = pack({**each[0], "carried": carried})
    return found


def _synapses(
    network: Populations, ends: Ends, prefix: str, shares: Sequence[State]
) -> tuple[State, Callable[[str, Sequence[Tensor]], Any]]:
    """Returns the state of a connection, and what moves values of a kind from all shares to it."""
    (source, target, *_), keys, places = ends, [], []
    own, total = network.own[target], network.totals[target]
    at, states = f"{prefix}connections.{name_of(ends)}.", [share["state_dict"] for share in shares]
    for share, state in zip(shares, states, strict=True):
        outputs = state[f"{at}outputs"] + share["own"][target][0]
        places.append(((outputs >= own.start) & (outputs < own.stop)).nonzero().flatten())
        inputs = torch.searchsorted(state[f"{at}starts"], places[-1], right=True) - 1
        keys.append(inputs * total + outputs[places[-1]])
    every, order = torch.cat(keys).sort()

    def move(kind: str, values: Sequence[Tensor]) -> Any:
        if kind.startswith("pre "):  # of the neurons of all processes
            return values[0]
        if not kind.startswith("weight"):
            return _cut(values, own)
        some = [each[..., place] for each, place in zip(values, places, strict=True)]
        return torch.cat(some, -1)[..., order]

    firsts = torch.arange(network.totals[source] + 1) * total
    index = {
        f"{at}starts": torch.searchsorted(every, firsts),
        f"{at}outputs": (every % total - own.start).int(),
    }
    for name in {f"{at}weight", f"{at}bias"} & states[0].keys():
        index[name] = move(name.removeprefix(at), [state[name] for state in states])
    return index, move


def _cut(values: Sequence[Any], own: range) -> Any:
    """Returns the state of own neurons, from those of the neurons of all shares."""
    if isinstance(values[0], dict):
        return {key: _cut([each[key] for each in values], own) for key in values[0]}
    if values[0] is None:
        return None
    return torch.cat([*values], -1)[..., own.start : own.stop].clone()


def _ranges(module: nn.Module) -> dict[str, tuple[int, int]]:
    """Returns which neurons this process has, by population."""
    return {name: (own.start, own.stop) for name, own in _network_of(module)[1].own.items()}


def _network_of(module: nn.Module) -> tuple[str, Populations]:
    """Returns the network with the beginning of its name, or raises a ``ValueError``."""
    found = _all_of(module, Populations)
    should = "one `Populations` that processes divide"
    checks.check_value(len(found) == 1, "module", [name for name, _ in found], should)
    return found[0]


def _all_of(module: nn.Module, kind: type[Found]) -> list[tuple[str, Found]]:
    """Returns the modules of a class with the beginnings of their names in a state dict."""
    every = module.named_modules()
    return [(f"{name}." if name else "", each) for name, each in every if isinstance(each, kind)]
