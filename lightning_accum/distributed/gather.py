"""Bytes of every process, in one all-reduce."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

#: Bytes of one accumulator that travel in the first all-reduce.
CAPACITY = 4096
_HEADER = 8


def gather_bytes(
    data: bytes, capacity: int, device: torch.device, group: Any = None
) -> list[bytes]:
    """Gathers each process' bytes, of any lengths, in all processes.

    Each process writes its length and its bytes into its own row of a table of zeros, and the sum
    of the tables has every row. Where a row turns out to be too short for somebody's bytes, all
    know it from the lengths, and a second all-reduce with rows of the longest follows.

    Args:
        data: bytes of this process.
        capacity: bytes that fit into a row of the first table, the same in all processes.
        device: where the table is made.
        group: process group; the default group when missing.

    Returns:
        The bytes of every process, in the order of the ranks.
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
