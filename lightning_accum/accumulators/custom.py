"""Accumulators written with three verbs: ``forward`` adds, ``calculate`` computes, ``reset``."""

import functools
import inspect
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics.utilities import rank_zero_warn

from lightning_accum._checks import quoted
from lightning_accum.accumulators.base import State, StreamAccumulator, copied

# The verbs of a subclass have names that torchmetrics uses otherwise, so they move.
_OWN = {verb: f"_own_{verb}" for verb in ("forward", "calculate", "reset")}


class CustomAccumulator(StreamAccumulator):
    """The base of accumulators that are written with three verbs.

    A subclass defines ``forward(data)``, which adds to ``self.data`` and returns nothing,
    ``calculate()``, which returns the result, and ``reset()``. ``self.data`` holds tensors, or
    other objects that a state dict may hold. Calling the accumulator adds a value and returns the
    result so far.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Raises:
        TypeError: if a subclass lacks one of the three.

    Example:
        >>> from lightning_accum.accumulators import CustomAccumulator
        >>> class Count(CustomAccumulator):
        ...     data = 0
        ...     def forward(self, data):
        ...         self.data = self.data + 1
        ...     def calculate(self):
        ...         return self.data
        ...     def reset(self):
        ...         self.data = 0
        >>> count = Count()
        >>> count("a"), count("b")
        (1, 2)
    """

    data: Any
    _own_calculate: Callable[[], Any]
    _own_reset: Callable[[], None]
    _told = False  # whether a warning of state elsewhere was given

    @abstractmethod
    def _own_forward(self, *args: Any, **kwargs: Any) -> None:
        """Adds a value to ``data``."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for verb, name in _OWN.items():
            if verb in vars(cls):
                setattr(cls, name, vars(cls)[verb])
                delattr(cls, verb)
        defined = [vars(each) for each in cls.mro() if each is not CustomAccumulator]
        found = [verb for verb, name in _OWN.items() if any(name in each for each in defined)]
        if len(found) < len(_OWN):
            raise TypeError(
                f"Accumulator `{cls.__name__}` should define `forward(data)`, which adds to"
                " `self.data`, `calculate()`, which returns the result, and `reset()`. Found"
                f" {found}: define all three, or derive from `StreamAccumulator` and define"
                " `update` and `compute`, as for any torchmetrics metric."
            )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        begins = copied(getattr(self, "data", torch.tensor(0)))
        self.add_state("data", torch.tensor(0))
        self.data = begins

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        # torchmetrics passes keywords by the signature of `update`, which takes any.
        self._update_signature = inspect.signature(self._own_forward)
        return functools.wraps(self._own_forward)(super()._wrap_update(update))

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Adds a value."""
        before = None if self._update_count else dict(vars(self))
        with torch.no_grad():
            found: object = self._own_forward(*args, **kwargs)
        now = vars(self).items() if before else ()
        changed = (name for name, value in now if before and before.get(name, before) is not value)
        lost = [k for k in changed if not k.startswith("_") and k not in self._initial]
        if lost and not self._told:  # of the first value, what no state dict holds
            self._told = True
            named = quoted((f"self.{name}" for name in lost), ", ")
            rank_zero_warn(
                f"`{type(self).__name__}` should keep what it adds up in `self.data`. Found that"
                f" `forward` changes {named}, which is not saved with the state: hold several"
                " values in one `self.data`, a dictionary or a list, or begin the name of what need"
                " not be saved with an underscore."
            )
        if found is not None:
            raise TypeError(
                f"`{type(self).__name__}.forward` should add to `self.data` and return nothing."
                f" Found that it returns a `{type(found).__name__}`, which would be lost: assign it"
                " to `self.data`, and return results from `calculate`."
            )

    def compute(self) -> Any:
        """Returns a copy of the result."""
        result = copied(self._own_calculate())
        if result is None and self._update_count:
            raise TypeError(
                f"`{type(self).__name__}.calculate` should return the result. Found that it returns"
                " nothing: return what it computes."
            )
        return result

    def reset(self) -> None:
        """Forgets all values."""
        before = self.data
        super().reset()
        default = self.data
        self._own_reset()
        was_zero = isinstance(before, Tensor) and before.numel() == 1 and not before.any()
        if self.data is default and default._version == 0 and not was_zero:
            raise TypeError(
                f"`{type(self).__name__}.reset` should assign the initial value to `self.data`."
                " Found it unchanged: write `self.data = ...`, as an assignment to a local name has"
                " no effect."
            )

    def _merged(self, parts: Sequence[State]) -> State:
        if len(parts) == 1:
            return parts[0]
        raise TypeError(
            f"Accumulator `{type(self).__name__}` should define how the states of several are"
            " combined. Found only `forward`, `calculate` and `reset`: pass"
            " `sync_on_compute=False` to `super().__init__`, and every process computes its own"
            " result."
        )
