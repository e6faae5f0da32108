"""The hooks by which monitors watch modules, their end, and a context in which they see nothing."""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, final

from torch import nn

from lightning_accum._compat.torch_internals import hooks_around, in_backward


@final
class Hook:
    """Passes calls of a module on to a monitor, both held weakly; a copy does nothing."""

    def __init__(self, observer: Any = None, module: nn.Module | None = None) -> None:
        self.observer = None if observer is None else weakref.ref(observer)
        self.module = None if module is None else weakref.ref(module)

    def __call__(self, module: nn.Module, args: Any, *rest: Any) -> None:
        """Passes a call on, unless it is repeated for a backward pass, or is unobserved."""
        if self.observer is None or self.module is None or self.module() is not module:
            return
        if in_backward() or (_open and is_unobserved()):
            return
        observer = self.observer()
        if observer is not None:
            observer.observe(module, args, rest)

    @property
    def is_idle(self) -> bool:
        """Whether its monitor is not registered, or does not exist."""
        observer = None if self.observer is None else self.observer()
        return observer is None or not observer.registered

    @property
    def __name__(self) -> str:
        """Raises an error that tells the user what to do: only ``torch.jit.script`` reads this."""
        module = None if self.module is None else self.module()
        raise AttributeError(
            f"A `{type(module).__name__}` that a monitor watches should not be scripted, as a"
            " monitor's hook cannot be. Found it in `torch.jit.script`: `deregister()` each of the"
            " rule's `monitors` before; a Trainer does so after the fit."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Hook, ()


def watching(module: nn.Module) -> int:
    """Returns how many hooks of a module's calls do something: all but those of paused monitors."""
    hooks = (hook for side in hooks_around(module) for hook in side)
    return sum(not (isinstance(hook, Hook) and hook.is_idle) for hook in hooks)


@final
class Switch:
    """Says whether monitors record; a trainer pauses all monitors that share one at once."""

    on = True


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
    """Returns whether the caller, while a context is open, runs inside :func:`unobserved`."""
    innermost = _innermost.get()
    return innermost is not None and innermost() is not None
