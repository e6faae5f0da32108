"""Checkpoints of networks that processes divide: each writes its share, and any number resumes."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lightning_accum import _checks as checks
from lightning_accum._state_vector import EXTRA, pack, unpack
from lightning_accum.cells.populations import Ends, Populations, name_of
from lightning_accum.cells.rule_trainer import RuleTrainer
from lightning_accum.distributed.neuron_shares import of_all
from lightning_accum.distributed.world import processes
from lightning_accum.engine.state import StateKey

Found = TypeVar("Found")
State: TypeAlias = dict[str, Any]
Ranges: TypeAlias = dict[str, tuple[int, int]]  # of own neurons, by population
Share: TypeAlias = tuple[Ranges, State]
Move: TypeAlias = Callable[[Sequence[Tensor]], Tensor]  # from the values of all shares to the own


def save_share(module: nn.Module, folder: str | Path) -> None:
    """Writes this process's share of a network and its trainers into a folder.

    Every process has to call it, between sequences; all have to see the folder.

    Args:
        module: contains one :class:`~lightning_accum.Populations` with ``split=True``, and the
            trainers of its cells.
        folder: is made if it does not exist.
    """
    write_share(folder, (own_ranges(module), module.state_dict()), torch.save)


def load_shares(module: nn.Module, folder: str | Path) -> None:
    """Loads what :func:`save_share` wrote in any number of processes.

    Args:
        module: made by the same program.
        folder: that was written.

    Raises:
        FileNotFoundError: if a share is missing.
    """
    shares = [torch.load(file, mmap=True, weights_only=True) for file in files_of(folder)]
    module.load_state_dict(own_state(module, shares))


def write_share(folder: str | Path, share: Any, save: Callable[[Any, Path], object]) -> None:
    """Writes the file of this process; the files of before stay until all have written theirs."""
    rank, count = dist.get_rank() if processes() > 1 else 0, processes()
    file = Path(folder) / f"{rank} of {count}.pt"
    file.parent.mkdir(parents=True, exist_ok=True)
    save(share, part := file.with_suffix(".part"))
    of_all(None)  # waits
    part.replace(file)
    for old in file.parent.glob("* of *.pt") if rank == 0 else ():
        if not old.stem.endswith(f" of {count}"):
            old.unlink()
    of_all(None)


def files_of(folder: str | Path) -> list[Path]:
    """Returns the files of all shares by rank, or raises a ``FileNotFoundError``."""
    files = sorted(Path(folder).glob("* of *.pt"), key=lambda file: int(file.stem.split()[0]))
    if {file.stem.split()[2] for file in files} != {str(len(files))}:
        raise FileNotFoundError(
            f"Folder `{folder}` should have the shares of all processes of one run, as"
            f" `0 of 2.pt`. Found {[file.name for file in files]}."
        )
    return files


def splits(module: nn.Module) -> list[str]:
    """Returns the parameters and buffers of which each process has a share, by name."""
    names = (
        [at + name for name, _ in (*network.named_parameters(), *network.named_buffers())]
        for at, network in _all_of(module, Populations)
        if network.exchange
    )
    return [name for each in names for name in each]


def own_ranges(module: nn.Module) -> Ranges:
    """Returns which neurons this process has, by population."""
    _, network = _network_of(module)
    return {name: (each.start, each.stop) for name, each in network.own.items()}


def own_state(module: nn.Module, shares: Sequence[Share]) -> State:
    """Returns the state of this process's share, from the shares of any number of processes.

    Those of another number hold what a network has between sequences: no recorded steps.
    """
    prefix, network = _network_of(module)
    mine = own_ranges(module)
    states, found = [state for _, state in shares], dict(shares[0][1])
    for of, state in shares:
        if of == mine:
            return state
    for name, own in network.own.items():
        for key in [key for key in found if key.startswith(f"{prefix}neurons.{name}.")]:
            values = [state[key] for state in states]
            found[key] = _cut_state(values, own) if key.endswith(EXTRA) else _cut(values, own)
    movers = {}
    for ends in network.delays:
        at = f"{prefix}connections.{name_of(ends)}."
        index, movers[network.cell(*ends).connection] = _moved_synapses(network, ends, at, shares)
        found |= index
    for at, trainer in _all_of(module, RuleTrainer):
        for name, (cell, _) in trainer.named_cells:
            ends = next(ends for ends in network.delays if network.cell(*ends) == cell)
            key = f"{at}_states.{name}.{EXTRA}"
            each = [unpack(state[key], f"cell `{name}`") for state in states]
            carried = {
                text: _carried(
                    text,
                    [one["carried"][text] for one in each],
                    network.own[ends[1]],
                    movers[cell.connection],
                )
                for text in each[0]["carried"]
            }
            found[key] = pack({**each[0], "carried": carried})
    return found


def _carried(text: str, values: Sequence[Tensor], own: range, move: Move) -> Tensor:
    """Returns what a trainer carries for the own neurons, or for their synapses."""
    kind = StateKey.parse(text).kind
    if kind.startswith("pre "):  # of the neurons of all processes
        return values[0]
    return move(values) if kind.startswith("weight ") else _cut(values, own)


def _moved_synapses(
    network: Populations, ends: Ends, at: str, shares: Sequence[Share]
) -> tuple[State, Move]:
    """Returns the own synapses of a connection, and what moves values of synapses to them."""
    (source, target, *_), parts, places = ends, [], []
    own, total = network.own[target], network.totals[target]
    for of, state in shares:
        outputs, first = state[f"{at}outputs"], of[target][0]
        inside = (outputs >= own.start - first) & (outputs < own.stop - first)
        places.append(inside.nonzero().flatten())
        inputs = torch.searchsorted(state[f"{at}starts"], places[-1], right=True) - 1
        parts.append(inputs * total + outputs[places[-1]].long() + first)
    keys, order = torch.cat(parts).sort()

    def move(values: Sequence[Tensor]) -> Tensor:
        some = [each[..., place] for each, place in zip(values, places, strict=True)]
        return torch.cat(some, -1)[..., order]

    firsts = torch.arange(network.totals[source] + 1) * total
    index = {
        f"{at}starts": torch.searchsorted(keys, firsts),
        f"{at}outputs": (keys % total - own.start).int(),
        f"{at}weight": move([state[f"{at}weight"] for _, state in shares]),
    }
    return index, move


def _cut(values: Sequence[Tensor], own: range) -> Tensor:
    """Returns the values of own neurons, from those of the neurons of all shares."""
    return torch.cat([*values], -1)[..., own.start : own.stop].clone()


def _cut_state(vectors: Sequence[Tensor], own: range) -> Any:
    """Returns the state of own neurons, from those of the neurons of all shares."""
    states = [unpack(vector, "neurons") for vector in vectors]
    each = {key: [state[key] for state in states] for key in states[0]}
    return pack({k: None if values[0] is None else _cut(values, own) for k, values in each.items()})


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
