"""Monitors: what modules take in and give out, seen through hooks."""

from __future__ import annotations

import copy
import functools
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._checks import check_callables, check_strings
from lightning_accum._compat import in_backward
from lightning_accum._state import CheckedState
from lightning_accum.functional.interpolation import Interpolation
from lightning_accum.observe.reducers.base import Latest, Reducer

Picker = Callable[[Any], Tensor]
Filter = Callable[[Tensor], bool]
Map = Callable[[Tensor], Tensor]
Handles = tuple[RemovableHandle, ...]


class MonitorConstructor(Protocol):
    """Makes a monitor of an attribute; see :meth:`Monitor.partialconstructor`."""

    def __call__(self, module: Any, attr: str) -> Monitor:
        """Makes the monitor of ``attr``, a dotted path that begins at ``module``."""
        ...


def first_tensor(value: Any) -> Tensor:
    """The first tensor of a module's arguments or results, depth first.

    Raises:
        TypeError: if there is none.

    Example:
        >>> import torch
        >>> first_tensor((None, (torch.ones(1), torch.zeros(1))))
        tensor([1.])
    """
    found = _search(value)
    if found is None:
        raise TypeError(
            "A monitored module should take or give at least one tensor."
            f" Found `{type(value).__name__}`: say with `picker` where the activity is."
        )
    return found


def _search(value: Any) -> Tensor | None:
    if isinstance(value, Tensor):
        return value
    items = value.values() if isinstance(value, dict) else value
    if isinstance(items, str) or not hasattr(items, "__iter__"):
        return None
    return next((found for item in items if (found := _search(item)) is not None), None)


# The call of `unobserved` within which this thread, or this task of asyncio, is.
_unobserved: ContextVar[weakref.ref[_Mark] | None] = ContextVar("unobserved", default=None)
# All that have not ended, of whomever: what is compiled can ask a dictionary, not a context.
_marks: dict[int, None] = {}


@contextmanager
def unobserved() -> Iterator[None]:
    """Modules that are called inside are seen by no monitor, in this thread or asyncio task.

    Example:
        >>> import torch
        >>> relu = nn.ReLU()
        >>> monitor = OutputMonitor(relu)
        >>> with unobserved():
        ...     _ = relu(torch.ones(1))
        >>> monitor.peek() is None
        True
    """
    before, mark = _unobserved.get(), _Mark()
    _unobserved.set(weakref.ref(mark))
    _marks[id(mark)] = None
    try:
        yield
    finally:
        _marks.pop(id(mark), None)
        _unobserved.set(before)  # a token would not be good in another task, where this may end


class _Mark:
    """Lives as long as a call of :func:`unobserved`: if an interrupt leaves it set, it is dead."""


class _Hook:
    """A hook that refers to monitor and module weakly, and is inert in a copy of the module."""

    def __init__(self, monitor: Monitor | None, module: nn.Module | None) -> None:
        self.monitor = None if monitor is None else weakref.ref(monitor)
        self.module = None if module is None else weakref.ref(module)

    def __call__(self, module: nn.Module, args: Any, *rest: Any) -> None:
        if self.monitor is None or self.module is None or self.module() is not module:
            return
        monitor = self.monitor()
        if monitor is None or not monitor.recording or in_backward():
            return
        mark = _unobserved.get() if _marks else None
        if mark is not None and mark() is not None:
            return
        if monitor.train_update if module.training else monitor.eval_update:
            monitor._observe(module, args, rest)

    @property
    def __name__(self) -> str:
        """Torch asks for it where it scripts a module, and nobody else does."""
        module = None if self.module is None else self.module()
        raise AttributeError(
            f"A `{type(module).__name__}` that a monitor watches should run as it is. Found it to"
            " be scripted, which the monitor's hook cannot be: take the hook away before, with"
            " `eval()` of the rule or `deregister()` of the monitor; a Trainer does so after the"
            " fit."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        return _Hook(None, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return (_Hook, (None, None))


class Monitor(CheckedState, ABC):
    """Watches one attribute of a module and feeds a reducer.

    Args:
        module: where the path begins; held weakly.
        attr: dotted path from ``module`` to what is watched; empty for ``module`` itself.
        reducer: keeps what was seen; the latest observation when ``None``.
        train_update: whether to record while the watched module is in training mode.
        eval_update: whether to record while it is in evaluation mode.
        picker: finds the tensor in the tuple of the module's positional arguments (in the
            dictionary of the others where it has none), or in a result that is no tensor; the
            first by default.
        filter_: records an observation only where this is true.
        map_: changes an observation before it is recorded.
        register: whether to begin watching at once.

    Raises:
        AttributeError: if the path leads nowhere.
    """

    def __init__(
        self,
        module: nn.Module,
        attr: str = "",
        reducer: Reducer | None = None,
        *,
        train_update: bool = True,
        eval_update: bool = False,
        picker: Picker = first_tensor,
        filter_: Filter | None = None,
        map_: Map | None = None,
        register: bool = True,
    ) -> None:
        super().__init__()
        check_strings(attr=attr)
        if reducer is not None and not isinstance(reducer, Reducer):
            raise TypeError(
                "Argument `reducer` should be a Reducer, such as `WindowRecorder()`. Found"
                f" `{type(reducer).__name__}`."
            )
        given = {"picker": picker, "filter_": filter_, "map_": map_}
        check_callables(**{k: v for k, v in given.items() if k == "picker" or v is not None})
        self.attr = attr
        self.reducer = Latest() if reducer is None else reducer
        self.train_update = train_update
        self.eval_update = eval_update
        self.picker = picker
        self.filter_ = filter_
        self.map_ = map_
        self.recording = True
        self._unhook: weakref.finalize[..., Any] | None = None
        self._module: weakref.ref[nn.Module] | None = None
        self.bind(module)
        if register:
            self.register()

    @classmethod
    def partialconstructor(cls, **options: Any) -> MonitorConstructor:
        """A constructor that waits for ``module`` and ``attr``, for a trainer's ``add_monitor``.

        Args:
            **options: those of the class; a reducer is copied for every monitor made.
        """
        return functools.partial(_construct, cls, options)

    # ------------------------------------------------------------------ watching
    def bind(self, module: Any) -> None:
        """Watches ``attr`` below ``module`` from now on; registers anew if it was registered.

        Raises:
            AttributeError: if the path leads nowhere; then it watches what it did before.
        """
        hooked, name = self._resolve(module, self.attr)  # or raises, and the hook stays
        registered = self.registered
        self.deregister()
        self.name = name
        object.__setattr__(self, "_module", weakref.ref(hooked))
        if registered:
            self.register()

    @property
    def module(self) -> nn.Module | None:
        """The module that carries the hook, ``None`` if it no longer exists."""
        return None if self._module is None else self._module()

    @property
    def registered(self) -> bool:
        """Whether the hook is in place."""
        return self._unhook is not None and self._unhook.alive

    def register(self) -> None:
        """Puts the hook in place; nothing happens when it is.

        Raises:
            RuntimeError: if the module no longer exists.
        """
        if self.registered:
            return
        module = self.module
        if module is None:
            raise RuntimeError(
                f"The module that `{self.attr or 'this monitor'}` watches no longer exists, or this"
                " monitor is a copy: bind it with `monitor.bind(module)`."
            )
        handles: list[RemovableHandle] = []
        # The hooks go when the monitor does, wherever it is dropped. Before they are in place, so
        # that an interrupt in between leaves none.
        self._unhook = weakref.finalize(self, _remove, handles)
        self._unhook.atexit = False
        handles += self._hook(module, _Hook(self, module))

    def deregister(self) -> None:
        """Takes the hook away; what was recorded stays."""
        if self._unhook is not None:
            if found := self._unhook.peek():  # not called, which would not do twice if interrupted
                _remove(*found[2])
            self._unhook.detach()
            self._unhook = None

    @abstractmethod
    def _hook(self, module: nn.Module, hook: _Hook) -> Handles: ...

    @abstractmethod
    def _seen(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Any: ...

    def _resolve(self, module: Any, attr: str) -> tuple[nn.Module, str]:
        """The module to hook, and the attribute of it that is watched."""
        found = _walk(module, attr)
        if not isinstance(found, nn.Module):
            raise AttributeError(
                f"Argument `attr` should lead to a module. Found `{attr}`, of type"
                f" `{type(found).__name__}`: a StateMonitor watches attributes."
            )
        return found, ""

    def _observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        value = self._seen(module, args, rest)
        if not isinstance(value, Tensor):
            # as a rule the first argument, and on the hot path
            plain = self.picker is first_tensor and type(value) is tuple and value
            value = value[0] if plain and isinstance(value[0], Tensor) else self.picker(value)
        if value.requires_grad:  # what is kept for backward is the module's business alone
            value = value.detach()
        self._take(value)

    def _pick(self, value: Any) -> Tensor:
        return value if isinstance(value, Tensor) else self.picker(value)

    def _take(self, observation: Tensor) -> None:
        """Records what was picked, filtered and mapped."""
        if self.filter_ is not None and not self.filter_(observation):
            return
        if self.map_ is not None:
            observation = self.map_(observation)
        reducer = self._modules["reducer"]  # spares a slow look-up on the hot path
        assert reducer is not None
        reducer.forward(observation)

    # ------------------------------------------------------------------ what was seen
    def forward(self, observation: Tensor) -> None:
        """Records an observation by hand."""
        self.reducer(observation)

    def clear(self, **kwargs: Any) -> None:
        """Drops what was recorded."""
        self.reducer.clear(**kwargs)

    def peek(self) -> Tensor | None:
        """The reducer's latest state."""
        return self.reducer.peek()

    @property
    def latest(self) -> Tensor | None:
        """The reducer's latest state, as :meth:`peek`."""
        return self.reducer.peek()

    def view(
        self,
        time: float | Tensor = 0.0,
        tolerance: float = 1e-5,
        interpolation: Interpolation | None = None,
    ) -> Tensor | None:
        """The reducer's state ``time`` ms ago, as :meth:`Reducer.view` says."""
        return self.reducer.view(time, tolerance, interpolation)

    def dump(self) -> Tensor | None:
        """The reducer's whole history, oldest first."""
        return self.reducer.dump()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_unhook": None, "_module": None}

    def extra_repr(self) -> str:
        """What is watched."""
        return f"attr={self.attr!r}, registered={self.registered}"


class InputMonitor(Monitor):
    """Watches what goes into a module, before the module runs.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> fc = nn.Linear(2, 3)
        >>> monitor = InputMonitor(fc)
        >>> _ = fc(torch.ones(1, 2))
        >>> monitor.peek()
        tensor([[1., 1.]])
    """

    def _hook(self, module: nn.Module, hook: _Hook) -> Handles:
        return (module.register_forward_pre_hook(hook, with_kwargs=True),)

    def _seen(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Any:
        return args or rest[0]


class OutputMonitor(Monitor):
    """Watches what a module gives out.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> relu = nn.ReLU()
        >>> monitor = OutputMonitor(relu)
        >>> _ = relu(torch.tensor([-1.0, 1.0]))
        >>> monitor.peek()
        tensor([0., 1.])
    """

    def _hook(self, module: nn.Module, hook: _Hook) -> Handles:
        return (module.register_forward_hook(hook),)

    def _seen(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Any:
        return rest[0]


class StateMonitor(Monitor):
    """Watches an attribute of a module, after the module has run.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> norm = nn.BatchNorm1d(1, momentum=1.0)
        >>> monitor = StateMonitor(norm, "running_mean")
        >>> _ = norm(torch.tensor([[1.0], [3.0]]))
        >>> monitor.peek()
        tensor([2.])
    """

    def _resolve(self, module: Any, attr: str) -> tuple[nn.Module, str]:
        return attribute(module, attr)

    def _hook(self, module: nn.Module, hook: _Hook) -> Handles:
        return (module.register_forward_hook(hook),)

    def _seen(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> Any:
        return getattr(module, self.name)


def attribute(module: Any, attr: str) -> tuple[nn.Module, str]:
    """The module that has the attribute at the end of a dotted path, and the attribute's name.

    Raises:
        AttributeError: if the path leads nowhere.
    """
    path, _, name = attr.rpartition(".")
    found = _walk(module, path)
    if not isinstance(found, nn.Module) or not hasattr(found, name):
        raise AttributeError(
            f"Argument `attr` should lead to an attribute of a module. Found `{attr}`, and"
            f" `{type(found).__name__}` has no `{name}`."
        )
    return found, name


def _remove(handles: list[RemovableHandle]) -> None:
    for handle in handles:
        handle.remove()


def _construct(cls: type[Monitor], options: dict[str, Any], module: Any, attr: str) -> Monitor:
    return cls(module, attr, **copy.deepcopy(options))


def _walk(start: Any, path: str) -> Any:
    found = start
    for i, name in enumerate(path.split(".") if path else ()):
        if not hasattr(found, name):
            at = ".".join(path.split(".")[:i])
            raise AttributeError(
                f"Argument `attr` should be a dotted path of attributes. Found `{path}`, and"
                f" `{at or type(start).__name__}` has no `{name}`."
            )
        found = getattr(found, name)
    return found
