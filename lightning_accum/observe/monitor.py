"""The base of all monitors, and those of a module's input and of its output."""

from __future__ import annotations

import copy
import functools
import sys
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, ClassVar, TypeAlias, TypeVar, final

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from lightning_accum._checked_state import CheckedState
from lightning_accum._checks import check_callables, check_strings, check_type
from lightning_accum.observe.hooks import Hook, Switch
from lightning_accum.observe.reducer import Latest, Reducer

Picker: TypeAlias = Callable[[Any], Tensor]
Filter: TypeAlias = Callable[[Tensor], bool]
Map: TypeAlias = Callable[[Tensor], Tensor]
MonitorConstructor: TypeAlias = "Callable[[Any, str], Monitor]"  # of a module and a path from it
ModuleT = TypeVar("ModuleT", bound=nn.Module)


def tensors_in(values: Any) -> Iterator[Tensor]:
    """Yields the tensors in arguments or results, which may be nested tuples, lists or dicts."""
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for each in values:
            yield from tensors_in(each)
    elif isinstance(values, dict):
        yield from tensors_in([*values.values()])


def shares_memory(tensor: Tensor, other: Tensor) -> bool:
    """Returns whether a tensor lies in the memory of another one."""
    try:
        place = tensor.untyped_storage().data_ptr()
        return place != 0 and place == other.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):  # a tensor without storage
        return False


def copied(module: ModuleT) -> ModuleT:
    """Returns a deep copy of a module, in which tensors are detached that gradients reach."""
    kept = (each for owner in module.modules() for each in tensors_in(vars(owner)))
    results = (each for each in kept if not isinstance(each, nn.Parameter))
    return copy.deepcopy(module, {id(each): each.detach().clone() for each in results})


def first_tensor(value: Any) -> Tensor:
    """Returns the first tensor of a module's arguments or results, depth first, or raises."""
    if type(value) is tuple and value and isinstance(value[0], Tensor):
        return value[0]  # as nearly always, at every step
    found = next(tensors_in(value), None)
    if found is None:
        raise TypeError(
            "A monitored module should take or return at least one tensor."
            f" Found `{type(value).__name__}`: pass a `picker` that finds the activity."
        )
    return found


def find_module(start: Any, path: str) -> nn.Module:
    """Returns the module at the end of a dotted path, which may be empty; else raises an error."""
    found, names = start, path.split(".") if path else []
    for i, name in enumerate(names):
        if not hasattr(found, name):
            at = ".".join(names[:i]) or type(start).__name__
            raise AttributeError(
                f"Argument `attr` should be a dotted path of attributes. Found `{path}`, and"
                f" `{at}` has no `{name}`."
            )
        found = getattr(found, name)
    if not isinstance(found, nn.Module):
        raise AttributeError(
            f"Argument `attr` should lead to a module. Found `{path}`, of type"
            f" `{type(found).__name__}`: a StateMonitor watches attributes."
        )
    return found


class Monitor(CheckedState, ABC):
    """Watches one attribute of a module and passes what it sees to a reducer.

    Args:
        module: the module at which the path begins; it is referred to weakly.
        attr: dotted path from ``module`` to what is watched; empty for ``module`` itself.
        reducer: keeps what was seen; only the latest observation if ``None``.
        train_update: whether to record while the watched module is in training mode.
        eval_update: whether to record while it is in evaluation mode.
        picker: finds the tensor in the tuple of the module's positional arguments (in the
            dictionary of its keyword arguments if there are no others), or in a result that is not
            a tensor; the first tensor by default.
        filter_: returns whether to record an observation.
        map_: changes an observation before it is recorded.
        register: whether to watch from the beginning.

    Raises:
        AttributeError: if the path does not lead to what can be watched.
    """

    _shown = ("attr", "registered")
    records_gradients: ClassVar[bool] = False
    """Whether it sees gradients of a loss."""

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
        fits = reducer is None or isinstance(reducer, Reducer)
        check_type(fits, "reducer", reducer, "a Reducer, such as `WindowRecorder()`")
        optional = {"filter_": filter_, "map_": map_}
        check_callables(picker=picker, **{k: v for k, v in optional.items() if v is not None})
        self.attr = attr
        self.reducer = Latest() if reducer is None else reducer
        self.train_update, self.eval_update = train_update, eval_update
        self.picker, self.filter_, self.map_ = picker, filter_, map_
        self.switch = Switch()  # a trainer replaces it by that of all its monitors
        self._hooks: weakref.finalize[..., Any] | None = None  # removes them when it is called
        self._paused = False
        self._module: weakref.ref[nn.Module] | None = None
        self.bind(module)
        if register:
            self.register()

    @classmethod
    def partialconstructor(cls, **options: Any) -> MonitorConstructor:
        """Returns a function of ``module`` and ``attr`` for a trainer's ``add_monitor``.

        Args:
            **options: options of the class; a reducer is copied for each monitor.
        """
        return functools.partial(_construct, cls, options)

    # ------------------------------------------------------------------ watching
    def bind(self, module: Any) -> None:
        """Watches ``attr`` below another module from now on, and stays registered if it was.

        Args:
            module: the module at which the path begins.

        Raises:
            AttributeError: if the path does not lead to what can be watched; the monitor then
                watches what it did before.
        """
        watched, name = self._resolve(module, self.attr)
        registered = self.registered
        self.deregister()
        self.name = name
        self._module = weakref.ref(watched)
        if registered:
            self.register()

    @property
    def module(self) -> nn.Module | None:
        """The module that carries the hook; ``None`` if it no longer exists."""
        return None if self._module is None else self._module()

    @property
    def registered(self) -> bool:
        """Whether the hook is in place, and passes calls on."""
        return self._hooks is not None and not self._paused

    def register(self) -> None:
        """Registers the hook, if it is not registered yet.

        What :func:`torch.compile` has compiled would not call a new hook: it is compiled again.

        Raises:
            RuntimeError: if the module no longer exists.
        """
        self._paused = False
        if self._hooks is not None:
            return
        module = self.module
        if module is None:
            raise RuntimeError(
                f"The module that `{self.attr or 'this monitor'}` watches no longer exists, or this"
                " monitor is a copy: bind it with `monitor.bind(module)`."
            )
        # Before the hooks, so that an interrupt in between does not leave any behind.
        hooks = ExitStack()
        self._hooks = weakref.finalize(self, hooks.close)
        self._hooks.atexit = False
        hooks.callback(self._add_hook(module, Hook(self, module)).remove)
        if "torch._dynamo" in sys.modules:
            torch.compiler.reset()

    def deregister(self, keep_hook: bool = False) -> None:
        """Removes the hook; what was recorded stays.

        Args:
            keep_hook: whether to leave the hook in place for compiled code; it passes nothing on.
        """
        self._paused = keep_hook
        if self._hooks is not None and not keep_hook:
            self._hooks()
            self._hooks = None

    def observe(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Takes in a call, if it records: its arguments and the rest, such as the result."""
        if self._paused or not self.switch.on:
            return
        if self.train_update if module.training else self.eval_update:
            self._take(module, args, rest)

    # ------------------------------------------------------------------ what subclasses say
    @abstractmethod
    def _take(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        """Records what is watched, in which the picker finds the tensor."""

    def _add_hook(self, module: nn.Module, hook: Hook) -> RemovableHandle:
        """Adds the hook to the module, by default after its forward pass."""
        return module.register_forward_hook(hook)

    def _resolve(self, module: Any, attr: str) -> tuple[nn.Module, str]:
        """Returns the module to hook, and the name of what is watched in it."""
        return find_module(module, attr), ""

    # ------------------------------------------------------------------ recording
    def _record(self, value: Any) -> None:
        """Filters, maps and records the tensor in a value, without its graph."""
        observation = value if isinstance(value, Tensor) else self.picker(value)
        if observation.requires_grad:
            observation = observation.detach()
        if self.filter_ is not None and not self.filter_(observation):
            return
        if self.map_ is not None:
            observation = self.map_(observation)
        self.reducer.forward(observation)

    def forward(self, observation: Tensor) -> None:
        """Records an observation by hand."""
        self.reducer(observation)

    # ------------------------------------------------------------------ what was seen
    def clear(self, **kwargs: Any) -> None:
        """Drops what was recorded."""
        self.reducer.clear(**kwargs)

    def peek(self) -> Tensor | None:
        """Returns the reducer's latest state."""
        return self.reducer.peek()

    def dump(self) -> Tensor | None:
        """Returns the reducer's whole history, oldest first."""
        return self.reducer.dump()

    def why_missing(self) -> str:
        """Returns how to mend that it has recorded less often than the module was called."""
        return "name a state that the neuron has at every step."

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_hooks": None, "_module": None}


def _construct(cls: type[Monitor], options: dict[str, Any], module: Any, attr: str) -> Monitor:
    return cls(module, attr, **copy.deepcopy(options))


@final
class InputMonitor(Monitor):
    """Watches the input of a module, before the module runs.

    See :class:`Monitor` for the arguments.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> fc = nn.Linear(2, 3)
        >>> monitor = InputMonitor(fc)
        >>> _ = fc(torch.ones(1, 2))
        >>> monitor.peek()
        tensor([[1., 1.]])
    """

    def _add_hook(self, module: nn.Module, hook: Hook) -> RemovableHandle:
        return module.register_forward_pre_hook(hook, with_kwargs=True)

    def _take(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        (kwargs,) = rest
        self._record(args or kwargs)


@final
class OutputMonitor(Monitor):
    """Watches the output of a module.

    See :class:`Monitor` for the arguments.

    Example:
        >>> from torch import nn
        >>> import torch
        >>> relu = nn.ReLU()
        >>> monitor = OutputMonitor(relu)
        >>> _ = relu(torch.tensor([-1.0, 1.0]))
        >>> monitor.peek()
        tensor([0., 1.])
    """

    def _take(self, module: nn.Module, args: Any, rest: tuple[Any, ...]) -> None:
        (result,) = rest
        self._record(result)


StateSource: TypeAlias = str | Picker | type[Monitor]
"""Where another signal of a neuron is seen: its attribute, a part of its output, or a monitor."""


def check_source(name: str, source: object) -> None:
    """Raises a ``TypeError`` if an argument does not say where a signal is found."""
    fits = isinstance(source, str) or callable(source)
    if isinstance(source, type):
        fits = issubclass(source, Monitor)
    should = "the path of an attribute of the neuron, a callable that finds a tensor in the"
    should += " neuron's output, or the class of a monitor"
    check_type(fits, name, source, should)
