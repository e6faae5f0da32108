"""Stages of a pipe: how each takes part in an iteration, what it selects, and what ends one."""

from __future__ import annotations

import inspect
import logging
import weakref
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from torch import Tensor, nn
from torchmetrics import Metric, MetricCollection
from torchmetrics.utilities import rank_zero_warn

from lightning_accum._checked_state import COUNT, CheckedState, check_state
from lightning_accum._checks import check_type, check_value
from lightning_accum.accumulators.base import Joinable, StreamAccumulator
from lightning_accum.distributed.world import is_first

_logger = logging.getLogger("lightning_accum")

#: An accumulator whose iteration ends, and the stages behind it.
Ending = tuple[Any, "Iterable[Stage]"]


class Selection(dict[str, Any]):
    """Items by name, which become the arguments of the next stage."""


class Parameters(NamedTuple):
    """The arguments that a function takes by name, and whether it takes any other name too."""

    names: tuple[str, ...]
    any_name: bool


def _parameters(function: Callable[..., Any]) -> Parameters | None:
    """Returns what a function takes; ``None`` if it takes arguments only in order."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # Some builtins have no signature.
        return None
    kinds = {parameter.kind for parameter in found}
    if kinds & {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.POSITIONAL_ONLY}:
        return None
    last = inspect.Parameter.VAR_KEYWORD
    return Parameters(tuple(p.name for p in found if p.kind is not last), last in kinds)


class Stage(Joinable, nn.Module):
    """A stage of a pipe, on either side of ``**``."""

    accumulates = False  # whether items stop here until the iteration ends

    only_computes = False
    """Whether it has no effect, so that its result is lost unless another stage takes it."""

    @cached_property
    def takes(self) -> Parameters | None:
        """The parameters of this stage; ``None`` if it takes arguments in order only."""
        return _parameters(self.forward)

    def arguments(self, item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Returns the arguments of this stage for an item, several for a :class:`Selection`."""
        if not isinstance(item, Selection):
            return (item,), {}
        if self.takes is None:
            return tuple(item.values()), {}
        free = [name for name in self.takes.names if name not in item]
        others = [name for name in item if name not in self.takes.names]
        if len(others) > len(free) and not self.takes.any_name:
            raise TypeError(
                f"Stage `{self}` should take the items that were selected before it, {list(item)}."
                f" Found its arguments {list(self.takes.names)}: select fewer items, or put a"
                " function in between."
            )
        renamed = dict(zip(others, free, strict=False))
        return (), {renamed.get(name, name): value for name, value in item.items()}

    def check_selected(self, names: Iterable[str]) -> None:
        """Raises a ``TypeError`` if this stage cannot take items of these names."""
        self.arguments(Selection.fromkeys(names))

    def send(self, item: Any) -> Any:
        """Sends an accumulated result through this stage, and returns the stage's result."""
        args, kwargs = self.arguments(item)
        return self(*args, **kwargs)

    def take(self, item: Any) -> Any:
        """Takes an item of a step, and returns the stage's result."""
        return self.send(item)

    def ending(self) -> Iterable[Ending]:
        """Yields the accumulators of a split's pipes whose iteration ends, with what is behind."""
        return ()

    def forget(self) -> None:
        """Resets everything accumulated since the iteration began."""

    def check(self) -> None:
        """Warns, before the first item, of results that would be lost."""


class Function(Stage):
    """A function, an accumulator, or a module of another library, as a stage."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.only_computes = isinstance(function, Metric | MetricCollection)
        self.accumulates = isinstance(function, StreamAccumulator)

    @cached_property
    def takes(self) -> Parameters | None:
        """The parameters of the function, of a module's ``forward``, or a metric's ``update``."""
        function: Any = self.function
        if isinstance(function, Metric):
            function = getattr(function, "receiver", function).update
        return _parameters(function.forward if isinstance(function, nn.Module) else function)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Returns the result of the function; of an accumulator, the result so far."""
        return self.function(*args, **kwargs)

    def take(self, item: Any) -> Any:
        """Takes an item of a step; an accumulator only adds it."""
        args, kwargs = self.arguments(item)
        return (self.function.update if self.accumulates else self.function)(*args, **kwargs)

    def forget(self) -> None:
        """Resets a metric."""
        if isinstance(self.function, Metric | MetricCollection):
            self.function.reset()

    def __repr__(self) -> str:
        if isinstance(self.function, nn.Module):
            return repr(self.function)
        return f"Function({getattr(self.function, '__qualname__', repr(self.function))})"


class Select(Stage):
    """Selects items by index or key, and names them.

    A single item is passed on unchanged. Of several items, each becomes the argument of its name in
    the next stage, and items of other names fill the remaining arguments in order: for
    ``update(preds, target)``, both ``Select(pred=1, target=2)`` and ``Select(target=2, pred=1)``
    mean the same.

    Args:
        **items: for each name an index, or a key if steps return dictionaries.

    Raises:
        TypeError: if an item is neither an index nor a key.
        ValueError: if no item is named.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Mean, Select
        >>> loss = Select(value=0, weight=2) ** Mean()
        >>> loss((torch.tensor(1.0), "logits", 32))
        >>> loss((torch.tensor(4.0), "logits", 16))
        >>> loss.end()
        tensor(2.)
    """

    only_computes = True

    def __init__(self, **items: Any) -> None:
        super().__init__()
        how = "give one and its index, as in `Select(pred=1)`"
        check_value(bool(items), "items", items, "at least one name", how)
        for name, place in items.items():
            never = place is None or isinstance(place, bool | float | Tensor)
            fits = isinstance(place, slice) or (isinstance(place, Hashable) and not never)
            mend = f"give its place in the result of a step, as in `{name}=0`"
            check_type(fits, name, place, "an index, or a key of a dictionary", mend)
        self.items = items

    def forward(self, data: Any) -> Any:
        """Returns the selected item, or a dictionary of several.

        Args:
            data: the result of a step: a sequence, or a dictionary.

        Raises:
            ValueError: if it lacks an item.
        """
        found = Selection()
        for name, place in self.items.items():
            try:
                found[name] = data[place]
            except (LookupError, TypeError) as error:  # noqa: PERF203 -- it tells which
                raise ValueError(
                    f"Argument `data` should have the items that are selected, {self.items}. Found"
                    f" {_kind(data)}, which lacks `{name}={place!r}`: select another place, or"
                    " have the step return it."
                ) from error
        return found if len(found) > 1 else found.popitem()[1]

    def extra_repr(self) -> str:
        """Returns the items."""
        return ", ".join(f"{name}={place!r}" for name, place in self.items.items())


def _kind(data: Any) -> str:
    """Returns what the result of a step is, for a message."""
    kind = f"`{type(data).__name__}`"
    if isinstance(data, Mapping):
        return f"{kind} with the keys {[*data]}"
    return f"{kind} of length {len(data)}" if isinstance(data, list | tuple) else kind


class Log(Stage):
    """Logs each value through the LightningModule that the pipe is bound to, and passes it on.

    If the pipe is not bound, the value is sent to the ``lightning_accum`` logger of Python's
    ``logging``, at level INFO; if that logger does not show it, the first item brings a warning.
    Two stages that log one name of one module in one epoch bring a warning.

    Args:
        name: name of the value.
        **kwargs: passed to ``LightningModule.log``, such as ``prog_bar=True``.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import Log, Mean
        >>> class Module:
        ...     def log(self, name, value):
        ...         print(name, value)
        >>> loss = (Mean() ** Log("loss")).bind(Module())
        >>> loss(torch.tensor(1.0))
        >>> _ = loss.end()
        loss tensor(1.)
    """

    def __init__(self, name: str, **kwargs: Any) -> None:
        super().__init__()
        self.name, self.kwargs = name, kwargs
        # A tuple hides the LightningModule, which may be a parent, from the submodules.
        self._owner: tuple[Any, ...] = ()

    def bind(self, module: Any) -> Log:
        """Logs through a LightningModule, or what has its ``log``, from now on; returns itself."""
        self._owner = (module,)
        return self

    def check(self) -> None:
        """Warns if nothing would be logged."""
        if not self._owner and not _logger.isEnabledFor(logging.INFO):
            rank_zero_warn(
                f"`{self}` should be bound to a LightningModule. Found none, so that nothing"
                " is logged: give the module to the source, `Source(self)`, or to the pipe,"
                " `pipe.bind(self)`, or let Python's logger `lightning_accum` show level INFO."
            )

    def forward(self, value: Any) -> Any:
        """Logs a number or a tensor of one element, and returns it."""
        for module in self._owner:
            # Lightning warns of integer tensors.
            whole = isinstance(value, Tensor) and not value.is_floating_point()
            module.log(self.name, value.float() if whole else value, **self.kwargs)
            _note_logged(module, self)
        if not self._owner and _logger.isEnabledFor(logging.INFO):
            shown = value.tolist() if isinstance(value, Tensor) else value
            _logger.info("%s: %s", self.name, shown)
        return value

    def extra_repr(self) -> str:
        """Returns the name."""
        return repr(self.name)


class Scalar(Stage, CheckedState):
    """Writes each value to TensorBoard, as a scalar, and passes it on.

    Values are counted from 0, and the count is their step. Of several processes, only the first
    writes. A copy of the stage, also a pickled one, opens a new writer on the same folder.

    Args:
        writer: a ``SummaryWriter``, or another object with its ``add_scalar``.
        name: name of the value.

    Example:
        >>> from lightning_accum.accumulators import Mean, Scalar
        >>> class Writer:
        ...     def add_scalar(self, name, value, step):
        ...         print(name, float(value), step)
        >>> loss = Mean() ** Scalar(Writer(), "loss")
        >>> _ = loss.run([1.0, 2.0]), loss.run([3.0])
        loss 1.5 0
        loss 3.0 1
    """

    def __init__(self, writer: Any, name: str) -> None:
        super().__init__()
        self.writer, self.name, self.step = writer, name, 0
        self._folder: str | None = None  # of a writer that is not open yet

    def forward(self, value: Any) -> Any:
        """Writes a number or a tensor of one element, and returns it."""
        if is_first():
            if self._folder is not None:
                from torch.utils.tensorboard import SummaryWriter

                self.writer, self._folder = SummaryWriter(self._folder), None
            self.writer.add_scalar(self.name, value, self.step)
        self.step += 1
        return value

    def get_extra_state(self) -> dict[str, int]:
        """Returns the next step, for the state dict."""
        return {"step": self.step}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Takes the next step from a state dict, if it fits."""
        self.check_extra_state(state)
        self.step = state["step"]

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not what :meth:`get_extra_state` returns."""
        check_state(f"`{self}`", state, {"step": COUNT})

    def extra_repr(self) -> str:
        """Returns the name."""
        return repr(self.name)

    def __getstate__(self) -> dict[str, Any]:
        # A writer has threads and open files, which cannot be copied; its folder can.
        folder = self._folder or getattr(self.writer, "log_dir", None)
        own = {} if folder is None else {"writer": None, "_folder": folder}
        return {**self.__dict__, **own}


# The stage that logged each name of a module last, with the run and epoch; None after a warning.
_LAST: weakref.WeakKeyDictionary[Any, dict[str, Any]] = weakref.WeakKeyDictionary()


def _note_logged(module: Any, stage: Log) -> None:
    """Warns, once for a name, if another stage has logged it in the same epoch of a fit."""
    try:
        trainer = module.trainer
        now = id(trainer), trainer.state.fn, trainer.current_epoch
    except (AttributeError, RuntimeError):  # Lightning's property raises without a Trainer
        return
    names = _LAST.setdefault(module, {})
    last = names.get(stage.name, (now, weakref.ref(stage)))
    if last is None:
        return
    epoch, before = last[0], last[1]()
    if epoch != now or before in (None, stage):
        names[stage.name] = now, weakref.ref(stage)
        return
    names[stage.name] = None
    rank_zero_warn(
        f"Each name should be logged by one `Log` of a LightningModule. Found `{stage.name}` logged"
        f" in one epoch by {_place(module, before)} and by {_place(module, stage)}, so that one"
        " value overwrites the other, or is averaged with it: rename one of them."
    )


def _place(module: Any, stage: Log) -> str:
    """Returns where a stage stands in a module."""
    paths = [f"`{path}`" for path, each in module.named_modules() if each is stage]
    return paths[0] if paths else "a pipe that is not an attribute of it"
