"""What every accumulator is: a torchmetrics metric that also answers to the streaming verbs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import rank_zero_warn
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from lightning_accum._metric import PersistentMetric
from lightning_accum.accumulators._stage import Stage
from lightning_accum.accumulators._values import Moves, copied
from lightning_accum.accumulators._verbs import check_update, only_one, take_verbs
from lightning_accum.distributed.gather import CAPACITY, gather_bytes
from lightning_accum.distributed.packing import from_bytes, to_bytes

State = dict[str, Any]


class StreamAccumulator(Stage, PersistentMetric):
    """A value streamed over steps: the base of all accumulators.

    Calling it with a value adds the value and returns the result so far, of this process alone.
    ``update`` adds without computing; ``compute`` combines all processes. ``accumulate`` and
    ``calculate`` are other names of these two.

    One of your own defines ``forward(data)``, which adds to ``self.data`` and returns nothing,
    ``calculate()``, which returns the result, and ``reset()``; ``self.data`` holds tensors or what
    a state dict may hold.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Raises:
        TypeError: if one of your own lacks one of the three.

    Example:
        >>> from lightning_accum.accumulators import StreamAccumulator
        >>> class Count(StreamAccumulator):
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

    # Whether its author gave it `forward`, `calculate` and `reset`, and keeps all in `data`.
    _by_verbs = False
    data: Any

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in vars(cls) and cls.update is StreamAccumulator.update:
            take_verbs(cls, StreamAccumulator)

    def __init__(self, **kwargs: Any) -> None:
        check_update(type(self), StreamAccumulator)
        super().__init__(**kwargs)
        if self._by_verbs:
            self.add_state("data", torch.tensor(0), persistent=True)
            own = getattr(type(self), "data", None)
            self.data = self.data if own is None else copied(own)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a value, and returns the result so far.

        Args:
            *args: what ``update`` takes.
            **kwargs: what ``update`` takes.

        Returns:
            The result of all values since the last reset; of this process alone unless
            ``dist_sync_on_step=True``.
        """
        if self._synchronised():
            raise TorchMetricsUserError(
                f"`{type(self).__name__}` should be un-synchronised when a value is added. Found it"
                " synchronised: call `unsync()` first."
            )
        self.update(*args, **kwargs)
        self._forward_cache = self.compute() if self.dist_sync_on_step else self._so_far()
        return self._forward_cache

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Adds a value; each accumulator says which."""
        raise NotImplementedError

    def compute(self) -> Any:
        """The result; each accumulator says which."""
        raise NotImplementedError

    def accumulate(self, *args: Any, **kwargs: Any) -> None:
        """Adds a value: ``update`` by another name."""
        self.update(*args, **kwargs)

    def calculate(self) -> Any:
        """Returns the result: ``compute`` by another name."""
        return self.compute()

    def reset(self) -> None:
        """Forgets all values."""
        for name in self._objects():
            setattr(self, name, torch.empty(0, device=self.device))
        super().reset()

    @property
    def metric_state(self) -> State:
        """The states by name."""
        return self._copy_state_dict()

    def merge_state(self, incoming_state: State | Metric) -> None:
        """Adds what another accumulator has seen, as if it had come after what this one has.

        Args:
            incoming_state: an accumulator of the same class, or its ``metric_state``.

        Raises:
            ValueError: if it is neither, or its values are of another shape.
        """
        if isinstance(incoming_state, type(self)):
            incoming_state = incoming_state.metric_state
        own = self._copy_state_dict()
        if not isinstance(incoming_state, dict) or incoming_state.keys() != own.keys():
            found = type(incoming_state).__name__
            found = f"{sorted(incoming_state)}" if isinstance(incoming_state, dict) else found
            raise ValueError(
                f"Argument `incoming_state` should be of class `{type(self).__name__}`, or a"
                f" dictionary of {sorted(own)}. Found {found}."
            )
        self._take_states(self._merged([own, incoming_state]))
        self._renew()

    # torchmetrics' hash is of the states, of which lists and dictionaries have none.
    __hash__ = torch.nn.Module.__hash__

    def _merged(self, parts: Sequence[State]) -> State:
        """The state of one stream that is these in order, of which some may be empty."""
        return only_one(type(self), parts)

    def _objects(self) -> list[str]:
        """The states that are not tensors, with which torchmetrics would not go on."""
        return [name for name in self._defaults if not isinstance(getattr(self, name), Tensor)]

    def _check_state(self, name: str, state: Any, default: Any) -> None:
        """Leaves what may be loaded to those that know."""

    def _is_empty(self) -> bool:
        """Whether the result is undefined for want of values."""
        return False

    def _synchronised(self) -> bool:
        """Whether the states are for now those of all processes."""
        return self._is_synced

    def _so_far(self) -> Any:
        """The result, neither synchronised nor cached."""
        return type(self).compute(self)

    def _take_states(self, states: State) -> None:
        for name, value in states.items():
            setattr(self, name, value)

    def _copy_state_dict(self) -> State:
        # States are replaced and never written to, so that references are as good as copies.
        return {name: getattr(self, name) for name in self._defaults}

    def _sync_dist(
        self,
        dist_sync_fn: Callable[..., Any] = gather_all_tensors,
        process_group: Any | None = None,
    ) -> None:
        data = to_bytes(self._copy_state_dict())
        group = process_group or self.process_group
        if dist_sync_fn is gather_all_tensors:
            rows = gather_bytes(data, CAPACITY, self.device, group)
        else:
            row = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
            rows = [bytes(found.cpu().numpy()) for found in dist_sync_fn(row, group=group)]
        self._take_states(self._merged([from_bytes(row) for row in rows]))

    def _adopt(self, value: Any) -> Any:
        """Caches a result of all processes."""
        if self._is_empty():
            rank_zero_warn(
                f"`{type(self).__name__}.compute` was called before any value was added: the"
                " result is nan."
            )
        self._computed = value
        return value

    def _compute_over(self, parts: Sequence[State]) -> None:
        """Caches the result of all processes' states, and keeps its own."""
        own = self._copy_state_dict()
        try:
            self._take_states(self._merged(parts))
            self._adopt(self._so_far())
        finally:
            self._take_states(own)

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(update)
        def counted(*args: Any, **kwargs: Any) -> None:
            update(*args, **kwargs)
            # A module's own `__setattr__` costs more than an addition of two scalars.
            self.__dict__["_computed"] = None
            self.__dict__["_update_count"] += 1

        return counted

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        # torchmetrics' own would drop the dimensions of a result of one element.
        @functools.wraps(compute)
        def cached() -> Any:
            if self._computed is not None:
                return copied(self._computed)
            with self.sync_context(
                dist_sync_fn=self.dist_sync_fn,
                should_sync=self._to_sync,
                should_unsync=self._should_unsync,
            ):
                value = self._adopt(compute())
            if not self.compute_with_cache:
                self._computed = None
            # What is cached is never given out: writing to a result changes nothing here.
            return copied(value)

        return cached

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        objects = self._objects()
        fn = fn if self._dtype_convert else Moves(fn)
        super()._apply(fn, [*exclude_state, *objects])
        for name in objects:
            setattr(self, name, apply_to_collection(getattr(self, name), Tensor, fn))
        return self
