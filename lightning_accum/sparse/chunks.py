"""Long batches in chunks, which stay in cache between the operations on them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

# How many elements a chunk has.
_ELEMENTS = 1 << 19


def in_chunks(call: Callable[[Tensor], Tensor], x: Tensor, row_elements: int) -> Tensor:
    """Applies a function to a batch, in chunks of few rows that reuse the same memory.

    The plain form is ``call(x)``.

    Args:
        call: a function that computes each row of its result from the same row of its argument.
        x: the batch, ``[K, ...]``.
        row_elements: number of elements that a row takes, of the argument or of the result,
            whichever has more.

    Example:
        >>> import torch
        >>> in_chunks(torch.neg, torch.arange(3), 1)
        tensor([ 0, -1, -2])
    """
    rows = max(1, _ELEMENTS // max(1, row_elements))
    if len(x) <= rows:
        return call(x)
    first, *others = x.split(rows)
    part = call(first)
    out = part.new_empty(len(x), *part.shape[1:])
    out[:rows] = part
    for i, chunk in enumerate(others, 1):
        out[i * rows : (i + 1) * rows] = call(chunk)
    return out
