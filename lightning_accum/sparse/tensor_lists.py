"""Lists of tensors, which a step goes over together: in chunks, and on one thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from lightning_accum._compat import foreach
from lightning_accum.sparse.flat_views import dense, flat_view

# Parameters, gradients, first and second moments, and their maxima if there are any.
Columns = Sequence[list[Tensor]]

# Elements of a chunk, which stays in cache between operations with all its columns and a work
# buffer. Large tensors are cut into pieces of this size.
CHUNK = 1 << 17
# Elements below which a parallel region costs more than it gains.
SERIAL = 1 << 13


def chunks(columns: Columns, together: float) -> Iterator[Columns]:
    """Yields small tensors together and large tensors in pieces.

    Args:
        columns: lists of equal length, whose tensors agree in size and layout at each index.
        together: elements of a chunk; infinite for one chunk, zero for a chunk per tensor.
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


@contextmanager
def staging(columns: Columns) -> Iterator[Columns]:
    """Yields copies of parameters and gradients like their moments, and copies parameters back."""
    moments = columns[2]
    params = [torch.empty_like(m).copy_(p) for m, p in zip(moments, columns[0], strict=True)]
    grads = [torch.empty_like(m).copy_(g) for m, g in zip(moments, columns[1], strict=True)]
    yield [params, grads, *columns[2:]]
    foreach("copy_")(columns[0], params)


def single_threaded(call: Callable[[], None]) -> None:
    """Calls a kernel on small tensors in one thread, without autograd.

    The kernel opens a parallel region for each tensor, which on a busy machine takes many times
    as long as the arithmetic on a small one.
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
    finally:  # again, since Ctrl-C may have interrupted the line above
        if threads > 1:
            torch.set_num_threads(threads)
