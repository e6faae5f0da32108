"""The processes that train together: which neurons each has, what they gather and exchange."""

import io
import pickle
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, final

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from lightning_accum._checks import check_value

State = dict[str, Any]

#: Bytes of one accumulator that fit into the first all-reduce.
CAPACITY = 4096
_HEADER = 8


def processes(group: Any = None) -> int:
    """Returns how many processes train together, 1 if training is not distributed."""
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Returns the number of this process, 0 if training is not distributed."""
    return dist.get_rank() if processes() > 1 else 0


def is_first() -> bool:
    """Returns whether this process has rank 0, or trains without others."""
    return rank() == 0


def own_neurons(size: int) -> range:
    """Returns which neurons of a population this process has; all if there is one process.

    Each process has as many, up to one.

    Args:
        size: the number of neurons in all processes.

    Raises:
        ValueError: if there are fewer neurons than processes.

    Example:
        >>> own_neurons(100)
        range(0, 100)
    """
    count = processes()
    should = f"at least {count}, a neuron for each process"
    check_value(size >= count, "size", size, should, "start fewer processes")
    return range(size * rank() // count, size * (rank() + 1) // count)


def of_all(value: Any, split: bool = True) -> list[Any]:
    """Returns a value of each process, by rank, all of which have to call it; else the own."""
    found: list[Any] = [value] * (processes() if split else 1)
    if len(found) > 1:
        dist.all_gather_object(found, value)
    return found


def summed(tensor: Tensor, group: Any = None) -> Tensor:
    """Returns the sum over processes of a tensor, which it may change in place."""
    if processes(group) > 1:
        dist.all_reduce(tensor, group=group)
    return tensor


def gather_bytes(
    data: bytes, capacity: int, device: torch.device, group: Any = None
) -> list[bytes]:
    """Gathers bytes of any length from all processes, in all processes."""
    # Each process writes the length of its bytes, and the bytes, to its own row of a table of
    # zeros; the sum of the tables has every row. If a row is too short for the bytes of a process,
    # all processes see it from the lengths, and repeat the sum with rows of the greatest length.
    if dist.get_backend(group) == "nccl" and device.type == "cpu":
        device = torch.device("cuda", torch.cuda.current_device())
    head = len(data).to_bytes(_HEADER, "little")
    rows = _all_rows((head + data)[: _HEADER + capacity], _HEADER + capacity, device, group)
    lengths = [int.from_bytes(row[:_HEADER], "little") for row in rows]
    start = _HEADER
    if max(lengths) > capacity:
        rows, start = _all_rows(data, max(lengths), device, group), 0
    return [row[start : start + length] for row, length in zip(rows, lengths, strict=True)]


def _all_rows(row: bytes, width: int, device: torch.device, group: Any) -> list[bytes]:
    """Returns a row of each process."""
    table = torch.zeros(dist.get_world_size(group), width, dtype=torch.uint8)
    table[dist.get_rank(group), : len(row)] = torch.frombuffer(bytearray(row), dtype=torch.uint8)
    table = table.to(device)
    dist.all_reduce(table, group=group)
    return [each.numpy().tobytes() for each in table.cpu()]


def to_bytes(states: Any) -> bytes:
    """Converts states to bytes; tensors are written compactly, other objects by pickle."""
    file = io.BytesIO()
    _Writer(file, protocol=5).dump(states)
    return file.getvalue()


def from_bytes(data: bytes) -> Any:
    """Returns the states that :func:`to_bytes` converted in a process of the same job."""
    # from anywhere else, pickle would run code
    return pickle.loads(data)


class _Writer(pickle.Pickler):
    """Pickles tensors as bytes, with the type of their device."""

    def reducer_override(self, obj: Any) -> Any:
        if not isinstance(obj, Tensor):
            return NotImplemented
        plain = obj.detach().cpu().resolve_conj().resolve_neg().contiguous()
        data = plain.reshape(-1).view(torch.uint8).numpy().tobytes()
        return _tensor, (data, plain.dtype, tuple(plain.shape), obj.device.type)


def _tensor(data: bytes, dtype: torch.dtype, shape: tuple[int, ...], device: str) -> Tensor:
    """Returns a tensor from its bytes."""
    if not data:
        return torch.empty(shape, dtype=dtype, device=device)
    # The device has no index: each process uses its own current device of that type.
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(shape).to(device)


class Share(NamedTuple):
    """The share of this process in the pending change of one parameter."""

    pending: Any  # with `parts` and `replace`
    param: Tensor
    samples: int | None  # that the change is the mean of; None if it is a sum

    def write(self, places: Tensor) -> None:
        """Writes both parts of the change, times the samples, to ``[2, ...]``."""
        weight = 1 if self.samples is None else self.samples
        for place, part in zip(places, self.pending.parts(self.param), strict=True):
            place.zero_() if part is None or not weight else torch.mul(part, weight, out=place)

    def replace(self, totals: Tensor, samples: Tensor) -> None:
        """Replaces the change by that of all processes, given what they have written in total."""
        self.pending.replace(*(totals if self.samples is None else totals.div_(samples)))


def exchange(shares: Sequence[Share], group: Any = None) -> None:
    r"""Replaces the pending change in each process by that of all processes together.

    .. math::
        \Delta = \sum_r \Delta_r \quad\text{for sums}, \qquad
        \Delta = \frac{\sum_r n_r\, \Delta_r}{\sum_r n_r} \quad\text{for means of } n_r
        \text{ samples},

    for each part by itself, in one all-reduce. A process without samples takes part with zeros.
    Afterwards all processes hold the same bits. A single process changes nothing.
    """
    if processes(group) == 1 or not shares:
        return
    params = [share.param for share in shares]
    dtype = reduce(torch.promote_types, (param.dtype for param in params), torch.float32)
    sizes = [2 * param.numel() for param in params]
    flat = torch.empty(len(shares) + sum(sizes), dtype=dtype, device=params[0].device)
    own, *parts = flat.split([len(shares), *sizes])
    own.copy_(torch.tensor([share.samples or 0 for share in shares]))
    places = [part.view(2, *param.shape) for part, param in zip(parts, params, strict=True)]
    for share, place in zip(shares, places, strict=True):
        share.write(place)
    dist.all_reduce(flat, group=group)
    for share, place, samples in zip(shares, places, own.clamp(min=1), strict=True):
        share.replace(place, samples)


@final
class SpikeExchange:
    """Gathers lists of spikes of any length from all processes, as a rule in one ``all_gather``."""

    # A row of a table has the number of a process's spikes, and their places. If a row is too
    # short, all processes see it, and repeat with longer rows.

    def __init__(self) -> None:
        self.room = 255  # places in a row

    def __call__(self, raster: Tensor) -> None:
        """Adds the spikes of the others to booleans that have the own; fewer than 2^31."""
        if processes() == 1:
            return
        flat = raster.view(-1)
        places = torch.from_numpy(np.flatnonzero(flat.cpu().numpy()))
        while True:
            row = torch.empty(1 + self.room, dtype=torch.int32)
            rows = row.new_empty(processes(), len(row))
            row[0], few = len(places), places[: self.room]
            row[1 : 1 + len(few)] = few
            dist.all_gather(list(rows.unbind()), row)
            most = int(rows[:, 0].max())
            if most <= self.room:
                break
            self.room = most + most // 4
        for row in rows:
            flat[row[1 : 1 + int(row[0])].long().to(flat.device)] = True


def states_of_others(own: Callable[[], State]) -> list[State] | None:
    """Gathers the states of the other processes, from rank 1, in the first one."""
    # Every process has to call it. The first has its own state already, and only it gets the list.
    if not is_first():
        dist.gather_object(own())
        return None
    found: list[Any] = [None] * processes()
    dist.gather_object(None, found)
    return found[1:]


def module_states(model: nn.Module) -> dict[str, State]:
    """Returns what modules of this package keep in addition to their parameters."""
    # These are potentials, thresholds, random streams and counts, which differ between processes.
    found: dict[str, State] = {}
    for name, module in model.named_modules():
        within = any(name.startswith(f"{known}.") for known in found)
        if within or not type(module).__module__.startswith("lightning_accum."):
            continue
        learned = dict(module.named_parameters())
        state = {key: value for key, value in module.state_dict().items() if key not in learned}
        if state:
            found[name] = state
    return found


def load_module_states(model: nn.Module, states: dict[str, State]) -> None:
    """Loads what :func:`module_states` returned into the modules that still exist."""
    modules = dict(model.named_modules())
    for name, state in states.items():
        if name in modules:
            modules[name].load_state_dict(state, strict=False)
