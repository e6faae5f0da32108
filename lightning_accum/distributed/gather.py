"""Gathers bytes from all processes in one all-reduce."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

#: Bytes of one accumulator that fit into the first all-reduce.
CAPACITY = 4096
_HEADER = 8


def gather_bytes(
    data: bytes, capacity: int, device: torch.device, group: Any = None
) -> list[bytes]:
    """Gathers bytes of any length from all processes, in all processes.

    Each process writes the length of its bytes, and the bytes, to its own row of a table of zeros;
    the sum of the tables has every row. If a row is too short for the bytes of a process, all
    processes see it from the lengths, and repeat the sum with rows of the greatest length.

    Args:
        data: the bytes of this process.
        capacity: the number of bytes in a row of the first table, the same in all processes.
        device: the device of the table.
        group: the process group; the default one when ``None``.

    Returns:
        The bytes of all processes, in the order of the ranks.
    """
    if dist.get_backend(group) == "nccl" and device.type == "cpu":
        device = torch.device("cuda", torch.cuda.current_device())
    head = len(data).to_bytes(_HEADER, "little")
    table = _all_rows((head + data)[: _HEADER + capacity], _HEADER + capacity, device, group)
    rows = [row.numpy().tobytes() for row in table]
    lengths = [int.from_bytes(row[:_HEADER], "little") for row in rows]
    start = _HEADER
    if max(lengths) > capacity:
        table = _all_rows(data, max(lengths), device, group)
        rows, start = [row.numpy().tobytes() for row in table], 0
    return [row[start : start + length] for row, length in zip(rows, lengths, strict=True)]


def _all_rows(row: bytes, width: int, device: torch.device, group: Any) -> Tensor:
    table = torch.zeros(dist.get_world_size(group), width, dtype=torch.uint8)
    table[dist.get_rank(group), : len(row)] = torch.frombuffer(bytearray(row), dtype=torch.uint8)
    table = table.to(device)
    dist.all_reduce(table, group=group)
    return table.cpu()
