"""The base of all accumulators, a metric that streams values, and the synchronisation of many."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Number
from typing import Any, ClassVar

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.utilities import rank_zero_warn
from torchmetrics.utilities.distributed import gather_all_tensors
from torchmetrics.utilities.exceptions import TorchMetricsUserError

from lightning_accum._checked_state import ANYTHING, COUNT, Kind
from lightning_accum._checks import check_strings, check_type
from lightning_accum._compat.torchmetrics_internals import is_synchronised
from lightning_accum._persistent_metric import PersistentMetric, representable
from lightning_accum.distributed.world import CAPACITY, from_bytes, gather_bytes, to_bytes

State = dict[str, Any]


def copied(value: Any) -> Any:
    """Returns a value with copies of its tensors."""
    return apply_to_collection(value, Tensor, torch.clone)


def assign(module: nn.Module, **values: object) -> None:
    """Assigns attributes that are neither parameters, buffers, modules nor properties."""
    # It equals one `setattr` for each. `nn.Module.__setattr__` looks for parameters, buffers and
    # modules of the name, which takes longer than to add two scalars.
    module.__dict__.update(values)


class Joinable:
    """The base of all that ``**`` joins to a pipe."""

    # A pipe imports accumulators, so this file cannot import its class, which `pipe.py` puts here.
    joined_by: ClassVar[Callable[..., Any]]

    def __pow__(self, other: Any) -> Any:
        """Returns a pipe that ends with another stage; of a metric, its power by a number."""
        power = getattr(super(), "__pow__", None) if isinstance(other, Number | Tensor) else None
        return Joinable.joined_by(self, other) if power is None else power(other)

    def __rpow__(self, other: Any) -> Any:
        """Returns a pipe that begins with another stage; of a metric, the power of a number."""
        power = getattr(super(), "__rpow__", None) if isinstance(other, Number | Tensor) else None
        return Joinable.joined_by(other, self) if power is None else power(other)


class StreamAccumulator(Joinable, PersistentMetric):
    """The base of all accumulators of values that are streamed over steps.

    Calling an accumulator with a value adds the value and returns the result so far, of this
    process only. ``update`` adds without computing; ``compute`` combines all processes.
    ``accumulate`` and ``calculate`` are other names of these two. To write another accumulator,
    derive from :class:`CustomAccumulator`.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`.

    Example:
        >>> from lightning_accum.accumulators import Sum
        >>> total = Sum()
        >>> total(1), total(2)
        (tensor(1), tensor(3))
    """

    # Of torchmetrics: whether `forward` needs all states. Its wrapper `Running` shows this value
    # when it refuses a metric whose states it cannot divide.
    full_state_update: Any = (
        "True. `Running` cannot divide the states of an accumulator: take `Window(length)` for the"
        " mean of the last values, or wrap a metric such as `torchmetrics.MeanMetric`"
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # The values that states have after a reset. They are not states of torchmetrics, which
        # takes only tensors, and shares the states of metrics in a collection that are equal.
        self._initial: State = {}

    def add_state(self, name: str, default: Any, *args: Any, **kwargs: Any) -> None:
        """Adds a state of any kind with its value after a reset; other arguments are ignored."""
        check_strings(name=name)
        self._initial[name] = default
        setattr(self, name, copied(default))

    @property
    def updates(self) -> int:
        """The number of values added, which is saved and merged with the states."""
        return self._update_count

    @updates.setter
    def updates(self, value: int) -> None:
        self._update_count = value

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Adds a value and returns the result so far; ``dist_sync_on_step`` combines processes."""
        if is_synchronised(self):
            raise TorchMetricsUserError(
                f"`{type(self).__name__}` should be un-synchronised when a value is added. Found it"
                " synchronised: call `unsync()` first."
            )
        self.update(*args, **kwargs)
        self._forward_cache = self.compute() if self.dist_sync_on_step else self.result_so_far()
        return self._forward_cache

    def accumulate(self, *args: Any, **kwargs: Any) -> None:
        """Adds a value: ``update`` by another name."""
        self.update(*args, **kwargs)

    def calculate(self) -> Any:
        """Returns the result: ``compute`` by another name."""
        return self.compute()

    def reset(self) -> None:
        """Forgets all values."""
        super().reset()
        self._take_states(copied(self._initial))

    @property
    def metric_state(self) -> State:
        """Returns the states by name."""
        return self._copy_state_dict()

    def merge_state(self, incoming_state: State | Metric) -> None:
        """Adds the values of another accumulator, as if they had come after those of this one.

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

    # torchmetrics hashes the states, but lists and dictionaries have no hash.
    __hash__ = nn.Module.__hash__

    def _merged(self, parts: Sequence[State]) -> State:
        """Returns the state of one stream that consists of these in order; some may be empty."""

        def joined(first: State, second: State) -> State:
            return {**self._joined(first, second), "updates": first["updates"] + second["updates"]}

        held = [self._here(part) for part in parts if part["updates"]]
        return functools.reduce(joined, held) if held else dict(parts[0])

    def _joined(self, first: State, second: State) -> State:
        """Returns the states of one stream that consists of two in order, neither of them empty."""
        raise NotImplementedError

    def _undefined(self, result: Any) -> str | None:
        """Returns why a result is nan whatever the values, ``None`` if it is not."""
        if self._update_count or not isinstance(result, Tensor) or not result.isnan().all():
            return None
        name = type(self).__name__
        return f"`{name}.compute` was called before any value was added: the result is nan."

    def result_so_far(self) -> Any:
        """Returns the result of this process, without caching it."""
        return type(self).compute(self)

    @property
    def receiver(self) -> Metric:
        """The metric that receives the values: this one, unless it passes them on."""
        return self

    def _take_states(self, states: State) -> None:
        """Replaces the states by name."""
        for name, value in states.items():
            setattr(self, name, value)

    def _copy_state_dict(self) -> State:
        # States are replaced and never changed in place, so references serve as copies.
        return {"updates": self._update_count} | {k: getattr(self, k) for k in self._initial}

    def _here(self, states: State) -> State:
        """Returns states with copies of their tensors, on this device."""

        def moved(tensor: Tensor) -> Tensor:
            return representable(tensor.detach(), self.device).to(self.device, copy=True)

        return apply_to_collection(states, Tensor, moved)  # type: ignore[no-any-return]

    def get_extra_state(self) -> State:
        """Returns the states by name, for the state dict."""
        return copied(self._copy_state_dict())  # type: ignore[no-any-return]

    def set_extra_state(self, state: State) -> None:
        """Takes the states from a state dict."""
        self._take_states(self._here(state))
        self._renew()

    def _kinds(self) -> dict[str, Kind]:
        return {"updates": COUNT, **dict.fromkeys(self._initial, ANYTHING)}

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
        """Caches a result of all processes, and warns if there were too few values for one."""
        if text := self._undefined(value):
            rank_zero_warn(text)
        self._computed = value
        return value

    def _wrap_update(self, update: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(update)
        def counted(*args: Any, **kwargs: Any) -> None:
            self._begin()
            update(*args, **kwargs)
            assign(self, _computed=None, _update_count=self._update_count + 1)

        return counted

    def _wrap_compute(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        # torchmetrics would drop the dimensions of a result of one element.
        @functools.wraps(compute)
        def cached() -> Any:
            if self._computed is not None:
                return copied(self._computed)
            with self.sync_context(
                dist_sync_fn=self.dist_sync_fn,
                should_sync=self._to_sync and self.sync_on_compute,
                should_unsync=self._should_unsync,
            ):
                value = self._adopt(compute())
            if not self.compute_with_cache:
                self._computed = None
            # A copy is returned, so that writing to it does not change the cache.
            return copied(value)

        return cached

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> Any:
        def moved(tensor: Tensor) -> Tensor:
            # A tensor keeps its dtype, as with `.to(torch.bfloat16)`.
            tensor = representable(tensor, fn(torch.empty(0, device=tensor.device)).device)
            found = fn(tensor)
            return found if found.dtype == tensor.dtype else tensor.to(found.device)

        move = fn if self._dtype_convert else moved
        super()._apply(move, exclude_state)
        self._initial = apply_to_collection(self._initial, Tensor, move)
        self._take_states(apply_to_collection(self._copy_state_dict(), Tensor, move))
        return self


def synchronize(accumulators: Any, capacity: int | None = None) -> None:
    """Computes many accumulators over all processes, with a single all-reduce.

    Each following ``compute`` returns the result computed here, without communication, until the
    accumulator is updated or reset; its states stay those of this process. All processes have to
    call this with the same accumulators in the same order, whether or not they have seen any
    values. With a single process, nothing happens.

    Args:
        accumulators: an accumulator, a module that has some anywhere within, such as a
            ``LightningModule``, a ``MetricCollection`` or a pipe, or a list or dictionary of these.
            Other metrics, and accumulators with ``sync_on_compute=False``, are left out.
        capacity: bytes of a process that fit into the all-reduce, the same in all processes; by
            default 4096 for each accumulator. A second all-reduce follows if a process has more.

    Raises:
        ValueError: if the accumulators are of several process groups.

    Example:
        >>> from lightning_accum.accumulators import Max, Mean, synchronize
        >>> found = {"loss": Mean(), "worst": Max()}
        >>> for accumulator in found.values():
        ...     accumulator.update(2.0)
        >>> synchronize(found)
        >>> found["loss"].compute()
        tensor(2., dtype=torch.float64)
    """
    found = [a for a in dict.fromkeys(_within(accumulators)) if a.sync_on_compute]
    found = [a for a in found if a.distributed_available_fn()]
    if not found:
        return
    group = found[0].process_group
    if any(a.process_group is not group for a in found):
        raise ValueError(
            "Argument `accumulators` should have one process group. Found several: call"
            " `synchronize` once for each."
        )
    data = to_bytes([a.metric_state for a in found])
    capacity = CAPACITY * len(found) if capacity is None else capacity
    rows = [from_bytes(row) for row in gather_bytes(data, capacity, found[0].device, group)]
    for accumulator, parts in zip(found, zip(*rows, strict=True), strict=True):
        own = accumulator._copy_state_dict()
        try:
            accumulator._take_states(accumulator._merged(parts))
            accumulator._adopt(accumulator.result_so_far())
        finally:
            accumulator._take_states(own)


def _within(accumulators: Any) -> list[StreamAccumulator]:
    """Returns the accumulators in a module or a collection."""
    if isinstance(accumulators, nn.Module):
        return [each for each in accumulators.modules() if isinstance(each, StreamAccumulator)]
    several = accumulators.values() if isinstance(accumulators, Mapping) else accumulators
    fits = isinstance(several, Iterable) and not isinstance(several, (str, bytes, Tensor))
    should = "an accumulator, a module that has some, or a list or dictionary of these"
    check_type(fits, "accumulators", several, should)
    return [each for part in several for each in _within(part)]
