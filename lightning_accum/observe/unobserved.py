"""A context in which no monitor records."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class _Context:
    """Stands for one ``with unobserved()``, and dies with it, even if an interrupt ends it."""


# The innermost context of this thread or asyncio task.
_innermost: ContextVar[weakref.ref[_Context] | None] = ContextVar("unobserved", default=None)
# The contexts of all threads. Code that torch.compile traced can read a dictionary, but not a
# ContextVar, so it asks the ContextVar only if this is not empty.
_open: dict[int, None] = {}


@contextmanager
def unobserved() -> Iterator[None]:
    """Keeps all monitors from recording what modules do inside, in this thread or asyncio task.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum.observe import OutputMonitor
        >>> relu = nn.ReLU()
        >>> monitor = OutputMonitor(relu)
        >>> with unobserved():
        ...     _ = relu(torch.ones(1))
        >>> monitor.peek() is None
        True
    """
    before, context = _innermost.get(), _Context()
    _innermost.set(weakref.ref(context))
    _open[id(context)] = None
    try:
        yield
    finally:
        _open.pop(id(context), None)
        _innermost.set(before)  # not `reset(token)`, which fails if another task ends the context


def is_unobserved() -> bool:
    """Returns whether the caller runs inside :func:`unobserved`."""
    if not _open:
        return False
    innermost = _innermost.get()
    return innermost is not None and innermost() is not None
