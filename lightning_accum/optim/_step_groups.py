"""Chooses the backend that steps each parameter of a group."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from operator import is_, itemgetter
from typing import Any, Literal

import torch
from torch import Tensor

from lightning_accum.functional.numbers import at_least_float32
from lightning_accum.optim._kernels import COMPILED, check_sizes
from lightning_accum.optim._plan import Batch, as_real
from lightning_accum.sparse.flat_views import dense, same_layout
from lightning_accum.sparse.tensor_lists import SERIAL, Columns
from lightning_accum.sparse.tensor_places import Places


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
        """Returns the parameters, their gradients and their moments.

        Raises:
            RuntimeError: if sizes differ, and neither :meth:`find` nor torch's kernel checks them.
        """
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
