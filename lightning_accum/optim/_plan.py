"""The plan of a step: which parameters have a gradient, and which backend steps each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter, is_, itemgetter
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.optim._kernels import COMPILED, check_sizes
from lightning_accum.optim.weight_decay import WeightDecay
from lightning_accum.sparse.tensor_lists import SERIAL, Columns, Places, dense, same_layout

_grad = attrgetter("grad")


class Planned(Protocol):
    """The interface of an optimizer that its plan uses."""

    param_groups: list[dict[str, Any]]
    weight_decay: WeightDecay
    plan_options: tuple[str, ...]

    @property
    def state(self) -> Any:
        """The state of each parameter."""

    def ready_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]:
        """Returns the state of a parameter, and begins it if there is none."""

    def step_groups(self, group: dict[str, Any], batch: Batch) -> Sequence[Any]:
        """Sorts the parameters of a group by the backend that steps them."""


def as_real(tensor: Tensor) -> Tensor:
    """Returns a real tensor unchanged, and a complex one as a view of pairs of numbers."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


class Batch:
    """The parameters of one group that have a gradient, with their states."""

    def __init__(
        self, optimizer: Planned, group: dict[str, Any], present: list[bool] | None
    ) -> None:
        self._members = list(group["params"])
        self._present = present
        self._options = _options(optimizer, group)
        self.params = self._members
        if present is not None:
            self.params = [p for p, has in zip(self._members, present, strict=True) if has]
        self.states = [optimizer.ready_state(group, param) for param in self.params]
        self._kind = self._first()
        self._lie = [param.stride() for param in self.params]
        self._strides: list[tuple[int, ...]] | None = None
        self.step_groups = optimizer.step_groups(group, self)

    def _first(self) -> tuple[torch.dtype, torch.device] | None:
        return (self.params[0].dtype, self.params[0].device) if self.params else None

    def fits(self, optimizer: Planned, group: dict[str, Any], present: list[bool] | None) -> bool:
        """Returns whether parameters, presence of gradients and options are unchanged."""
        return (
            _same(self._members, group["params"])
            and self._present == present
            and self._options == _options(optimizer, group)
            and self._kind == self._first()
            and all(members.stands() for members in self.step_groups)
        )

    def of(self, members: Any, grads: list[Tensor]) -> list[Tensor]:
        """Returns the gradients of a step group."""
        return grads if len(self.step_groups) == 1 else [grads[i] for i in members.index]

    def laid_out(self, grads: list[Tensor]) -> bool:
        """Finds the memory of step groups, and returns whether gradients lie as their parameters.

        Such gradients are dense, and have their elements in the same order in memory.
        """
        flat = [members for members in self.step_groups if members.is_flat]
        found = [members.find(self.of(members, grads)) for members in flat]
        if not all(found):
            return False
        if flat and len(flat) == len(self.step_groups):
            return True
        strides = [grad.stride() for grad in grads]
        if strides != self._strides:
            pairs = zip(grads, self.params, strict=True)
            if not all(g.layout is torch.strided and same_layout(g, p) for g, p in pairs):
                return False
            if self._lie != [param.stride() for param in self.params]:
                return False
            self._strides = strides
        return True

    def lay_out(self, grads: list[Tensor]) -> list[Tensor]:
        """Returns the gradients, with copies of those in another layout than their parameters."""
        return [
            g if same_layout(g, p) else torch.empty_like(p).copy_(g)
            for g, p in zip(grads, self.params, strict=True)
        ]


class Plan:
    """The batches of an optimizer, one for each parameter group."""

    def __init__(self, optimizer: Planned, present: list[list[bool] | None]) -> None:
        groups = optimizer.param_groups
        self.batches = [Batch(optimizer, g, p) for g, p in zip(groups, present, strict=True)]
        self._states = list(optimizer.state.values())

    @classmethod
    def of(cls, optimizer: Planned, known: Plan | None) -> tuple[Plan, list[list[Tensor]]]:
        """Returns a plan, the known one if it still fits, and the gradients of each group."""
        groups = optimizer.param_groups
        grads = [[g for g in map(_grad, group["params"]) if g is not None] for group in groups]
        present = [
            None
            if len(own) == len(group["params"])
            else [p.grad is not None for p in group["params"]]
            for own, group in zip(grads, groups, strict=True)
        ]
        if (
            known is not None
            and known._fits(optimizer, present)
            and all(map(Batch.laid_out, known.batches, grads))
        ):
            return known, grads
        for own, group in zip(grads, groups, strict=True):
            _check_gradients(optimizer, [p for p in group["params"] if p.grad is not None], own)
        plan = cls(optimizer, present)
        for i, batch in enumerate(plan.batches):
            if not batch.laid_out(grads[i]) and not groups[i]["differentiable"]:
                grads[i] = batch.lay_out(grads[i])
                batch.laid_out(grads[i])
        return plan, grads

    def _fits(self, optimizer: Planned, present: list[list[bool] | None]) -> bool:
        groups = optimizer.param_groups
        return (
            len(self.batches) == len(groups)
            # A state that was loaded, moved or dropped is another dict.
            and _same(self._states, optimizer.state.values())
            and all(
                batch.fits(optimizer, group, own)
                for batch, group, own in zip(self.batches, groups, present, strict=True)
            )
        )


def _same(known: Sequence[object], found: Any) -> bool:
    return len(known) == len(found) and all(map(is_, known, found))


def _options(optimizer: Planned, group: dict[str, Any]) -> tuple[object, ...]:
    return (
        isinstance(group["lr"], Tensor),
        type(optimizer.weight_decay),
        *(group.get(name) for name in optimizer.plan_options),
    )


def _check_gradients(optimizer: Planned, params: list[Tensor], grads: list[Tensor]) -> None:
    for param, grad in zip(params, grads, strict=True):
        if grad.shape != param.shape:  # the parameter's data was replaced
            raise RuntimeError(
                f"A gradient should be of the shape of its parameter, {tuple(param.shape)}. Found"
                f" `grad.shape = {tuple(grad.shape)}`: call `zero_grad()` after a change of shape."
            )
        if grad.layout is not torch.strided:
            raise RuntimeError(
                f"`{type(optimizer).__name__}` takes dense gradients. Found one of shape"
                f" {tuple(grad.shape)} with `layout = {grad.layout}`: use torch.optim.SparseAdam"
                " for that parameter, or make its layer with `sparse=False`."
            )


def refuse_capture(group: dict[str, Any], device: torch.device) -> None:
    """Raises a ``RuntimeError`` if a CUDA graph would repeat the numbers of this step forever."""
    if device.type != "cuda" or group["capturable"]:
        return
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "A step that is captured in a CUDA graph should count on the device. Found"
            " `capturable = False`: make the optimizer with `capturable=True`."
        )


def call_in_place(method: Callable[..., object], changes: str, *args: Any) -> None:
    """Calls a method of the template, which should change one of its arguments in place."""
    found = method(*args)
    if found is not None:
        by = {"param": "copy_", "state": "update"}[changes]
        raise TypeError(
            f"`{method.__name__}` of an optimizer should change `{changes}` in place and return"
            f" nothing. Found that it returns a `{type(found).__name__}`, which would be lost: call"
            f" `{changes}.{by}(...)` with it."
        )


@dataclass(frozen=True)
class Traits:
    """The properties of an optimizer that decide which backends can step its parameters.

    Attributes:
        optimizer: name of its class.
        decay: name of the class of its weight decay.
        moments: names of the moments in its states; none if a subclass defines its own step.
        by_formula: whether neither the step nor the weight decay are those of a subclass, which
            would have to be called.
        is_adam: whether the formula of the step is Adam's.
        scheduled: whether the learning rate depends on the step.
    """

    optimizer: str
    decay: str
    moments: tuple[str, ...]
    by_formula: bool
    is_adam: bool
    scheduled: bool


Backend = Literal["fused", "listed", "compiled", "single"]


@dataclass
class StepGroup:
    """Parameters of one device and dtype that one backend steps.

    Attributes:
        backend: torch's fused kernel, lists of tensors, compiled code, or one tensor at a time.
        staged: whether they differ from their moments in dtype or layout.
        device: their device.
        names: names of the moments.
        params: the parameters.
        states: their states.
        index: the positions of their gradients among those of the parameter group.
        moments: the moments that were checked, a list for each name.
        found: whether :attr:`places` has their memory, and that of the gradients, at this step.
    """

    backend: Backend
    staged: bool
    device: torch.device
    names: tuple[str, ...]
    params: list[Tensor] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    moments: list[list[Tensor]] = field(default_factory=list)
    found: bool = False

    def __post_init__(self) -> None:
        self.moments = self.moments or [[] for _ in self.names]

    def add(self, index: int, param: Tensor, state: dict[str, Any]) -> None:
        """Adds a parameter."""
        self.index.append(index)
        self.params.append(param)
        self.states.append(state)
        for name, column in zip(self.names, self.moments, strict=True):
            column.append(state[name])

    def part(self, which: list[int]) -> StepGroup:
        """Returns the step group of some of the parameters."""
        part = StepGroup(self.backend, self.staged, self.device, self.names)
        for i in which:
            part.add(self.index[i], self.params[i], self.states[i])
        return part

    @cached_property
    def is_flat(self) -> bool:
        """Whether the backend goes over the tensors as flat memory of the CPU, without copies."""
        direct = self.backend != "single" and not self.staged and bool(self.names)
        return direct and self.device.type == "cpu"

    @cached_property
    def places(self) -> Places:
        """The memory of the parameters, their gradients and their moments."""
        return Places(self.params, self.moments)

    def find(self, grads: list[Tensor]) -> bool:
        """Finds the memory of the tensors, and returns whether its backend may go over it."""
        self.found = self.is_flat and self.places.find(grads)
        return self.found

    def stands(self) -> bool:
        """Returns whether the states still hold the moments that were checked."""
        try:
            for name, known in zip(self.names, self.moments, strict=True):
                if not all(map(is_, known, map(itemgetter(name), self.states))):
                    return False
        except KeyError:
            return False
        return True

    def columns(self, grads: list[Tensor]) -> Columns:
        """Returns the parameters, their gradients and their moments."""
        columns = [self.params, grads, *self.moments]
        if self.backend == "fused" and self.device.type == "cpu" and not self.found:
            check_sizes(columns)
        return columns


def step_groups(traits: Traits, group: dict[str, Any], batch: Batch) -> list[StepGroup]:
    """Sorts the parameters of a group by backend, with moments in the layout that it expects."""
    names = traits.moments
    found: dict[tuple[Any, ...], StepGroup] = {}
    for i, (param, state) in enumerate(zip(batch.params, batch.states, strict=True)):
        if len(names) > 2 and names[2] not in state:  # the option was switched on since
            state[names[2]] = state[names[1]].clone()
        backend, staged = _backend(traits, group, param), False
        # Autograd follows the moments unchanged, and a subclass of tensors has its own layout.
        own = () if group["differentiable"] or not _is_plain(param) else names
        if own:
            staged = _fit(own, state, as_real(param))
        # A staged group has one step count; a captured step needs one for each parameter.
        if backend == "single" or (staged and group["capturable"]):
            backend, staged = "single", False
        else:
            large = group.get("compile") and param.numel() >= COMPILED
            if large and backend == "listed" and not staged:
                backend = "compiled"
        # The fused kernel steps small tensors in one thread, apart from large ones.
        small = backend == "fused" and param.numel() < SERIAL
        key = (backend, staged, small, own, param.device, param.dtype)
        found.setdefault(key, StepGroup(backend, staged, param.device, own)).add(i, param, state)
    return list(found.values())


def _is_plain(param: Tensor) -> bool:
    return type(param) in (Tensor, torch.nn.Parameter)


def _backend(traits: Traits, group: dict[str, Any], param: Tensor) -> Backend:
    plain = traits.by_formula and _is_plain(param) and param.is_floating_point()
    # The kernel reads a rate on the device, but no rate or ε computed from a count on the device.
    computed = group["capturable"] and (traits.scheduled or group.get("optimized_update"))
    here = param.device.type in ("cpu", "cuda")
    fusable = traits.is_adam and plain and here and not computed
    if group.get("fused") and not fusable:
        raise ValueError(
            "Argument `fused` should be left out for parameters that are not plain floating-point"
            " tensors on a CPU or a CUDA device, with `capturable=True` for a rate or ε that"
            " depends on the step, and for a subclass with another `step_param` or weight decay."
            f" Found `fused = True` for a `{type(param).__name__}` with `dtype = {param.dtype}` on"
            f" {param.device}, in `{traits.optimizer}` with `{traits.decay}`."
        )
    if not plain or group["differentiable"]:
        return "single"
    if fusable and group.get("fused") is not False and group["foreach"] is None:
        return "fused"
    remote = isinstance(group["lr"], Tensor) and not group["lr"].is_cpu
    return "single" if group["capturable"] or remote else "listed"


def _fit(names: tuple[str, ...], state: dict[str, Any], param: Tensor) -> bool:
    """Gives moments the parameter's layout, and returns whether steps have to be staged."""
    dtype = at_least_float32(param.dtype)
    for name in names:
        moment = state[name]
        fits = moment.dtype == dtype and moment.device == param.device
        if not fits or not same_layout(moment, param) or not dense(moment):
            state[name] = torch.empty_like(param, dtype=dtype).copy_(moment)
    return dtype != param.dtype or not same_layout(state[names[0]], param)
