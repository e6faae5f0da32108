"""In what pieces a step goes over many tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from lightning_accum._compat import foreach

# Parameters, gradients, first and second moments, and their maxima where they are kept.
Columns = Sequence[list[Tensor]]

# Elements of a chunk: with all its columns and a work buffer it stays in cache from operation to
# operation. Of large tensors, it is a piece.
CHUNK = 1 << 17
# Elements below which a parallel region costs more than it gains.
SERIAL = 1 << 13


def chunks(columns: Columns, together: float) -> Iterator[Columns]:
    """Small tensors together, large ones in pieces.

    Args:
        columns: lists of as many tensors, in each place of one size and layout.
        together: elements of a chunk: infinite for all in one, zero for each tensor alone.
    """
    start, elements = 0, 0
    piece = max(together, CHUNK)
    for i, param in enumerate(columns[0]):
        size = param.numel()
        if size > piece and all(dense(column[i]) for column in columns):
            if start < i:
                yield [column[start:i] for column in columns]
            lines = [flat_view(column[i]).split(int(piece)) for column in columns]
            yield from ([[part] for part in parts] for parts in zip(*lines, strict=True))
            start, elements = i + 1, 0
            continue
        elements += size
        if elements >= together:
            yield [column[start : i + 1] for column in columns]
            start, elements = i + 1, 0
    if start < len(columns[0]):
        yield [column[start:] for column in columns]


def dense(tensor: Tensor) -> bool:
    """Whether the elements fill a stretch of memory, in whatever order."""
    return tensor.is_contiguous() or torch.empty_like(tensor).stride() == tensor.stride()


def flat_view(tensor: Tensor) -> Tensor:
    """The elements of a dense tensor as they lie in memory."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    return tensor.as_strided((tensor.numel(),), (1,))


def flat_alias(tensor: Tensor) -> Tensor:
    """Like :func:`flat_view`, but not a view: compiled code recompiles for each shape of a base."""
    alone = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    start, size = tensor.storage_offset(), tensor.numel()
    return alone.set_(tensor.untyped_storage(), start, (size,), (1,))


@contextmanager
def staging(columns: Columns) -> Iterator[Columns]:
    """Parameters and gradients as their moments are, the parameters copied back at the end."""
    moments = columns[2]
    params = [torch.empty_like(m).copy_(p) for m, p in zip(moments, columns[0], strict=True)]
    grads = [torch.empty_like(m).copy_(g) for m, g in zip(moments, columns[1], strict=True)]
    yield [params, grads, *columns[2:]]
    foreach("copy_")(columns[0], params)


def single_threaded(call: Callable[[], None]) -> None:
    """Calls a kernel on small tensors, on which its own overhead would be most of the time.

    It opens a parallel region for each, however small, which on a busy machine takes many times
    as long as the arithmetic: so one thread. And nothing is to be recorded for autograd.
    """
    threads = torch.get_num_threads()
    try:
        try:
            if threads > 1:
                torch.set_num_threads(1)
            with torch.inference_mode():
                call()
        finally:
            if threads > 1:
                torch.set_num_threads(threads)
    finally:  # once more, for Ctrl-C may come in the midst of the line above
        if threads > 1:
            torch.set_num_threads(threads)
