"""Which parameters of a group are stepped in which way."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from lightning_accum.optim._chunks import SERIAL, Columns
from lightning_accum.optim._kernels import COMPILED
from lightning_accum.optim._plan import Batch, same_layout
from lightning_accum.updates.part import accumulation_dtype

if TYPE_CHECKING:
    from lightning_accum.optim._moments import MomentOptimizer

Way = Literal["fused", "listed", "compiled", "single"]


@dataclass
class Route:
    """Parameters that go one way, of one device and dtype.

    Attributes:
        way: by torch's fused kernel, by lists of tensors, by a compiled pass, or one at a time.
        staged: whether they differ from their moments in dtype or layout.
        device: where they are.
        params: the parameters.
        states: their states.
        index: which of the group's gradients are theirs.
    """

    way: Way
    staged: bool
    device: torch.device
    params: list[Tensor] = field(default_factory=list)
    states: list[dict[str, Any]] = field(default_factory=list)
    index: list[int] = field(default_factory=list)

    def part(self, which: list[int]) -> Route:
        """The route of some of the parameters."""
        lists: Any = ([own[i] for i in which] for own in (self.params, self.states, self.index))
        return Route(self.way, self.staged, self.device, *lists)

    def columns(self, grads: list[Tensor], names: tuple[str, ...]) -> Columns:
        """The parameters, their gradients and their moments."""
        return [self.params, grads, *([state[name] for state in self.states] for name in names)]


def routes(optimizer: MomentOptimizer, group: dict[str, Any], batch: Batch) -> list[Route]:
    """The ways of a group's parameters; their moments are laid out as those ask for."""
    names = optimizer._names(group)
    found: dict[tuple[Any, ...], Route] = {}
    for i, (param, state) in enumerate(zip(batch.params, batch.states, strict=True)):
        if group["amsgrad"] and names[2] not in state:  # switched on since
            state[names[2]] = state[names[1]].clone()
        way, staged = _way(optimizer, group, param), False
        if way != "single":
            staged = _fit(names, state, param)
            if staged and group["capturable"]:  # chunks would need a count of their own
                way, staged = "single", False
            large = group.get("compile") and param.numel() >= COMPILED
            if large and way == "listed" and same_layout(param, state[names[0]]):
                way = "compiled"
        # the fused kernel takes small tensors apart from large ones
        small = way == "fused" and param.numel() < SERIAL
        key = (way, staged, small, param.device, param.dtype)
        route = found.setdefault(key, Route(way, staged, param.device))
        route.params.append(param)
        route.states.append(state)
        route.index.append(i)
    return list(found.values())


def _way(optimizer: MomentOptimizer, group: dict[str, Any], param: Tensor) -> Way:
    plain = type(param) in (Tensor, torch.nn.Parameter) and param.is_floating_point()
    # the kernel takes a rate from the device, but not what is computed of a count that is there
    folded = group["capturable"] and (optimizer._scheduled or group.get("optimized_update"))
    here = param.device.type in ("cpu", "cuda")
    fusable = optimizer._adam and plain and here and not folded
    if group.get("fused") and not fusable:
        raise ValueError(
            "Argument `fused` should be left out for parameters that are not plain floating-point"
            " tensors on a CPU or a CUDA device, and where `capturable=True` for a rate or ε that"
            f" depends on the step. Found `fused = True` for a `{type(param).__name__}` with"
            f" `dtype = {param.dtype}` on {param.device}."
        )
    if not plain or group["differentiable"]:
        return "single"
    if fusable and group.get("fused") is not False and group["foreach"] is None:
        return "fused"
    remote = isinstance(group["lr"], Tensor) and not group["lr"].is_cpu
    return "single" if group["capturable"] or remote else "listed"


def _fit(names: tuple[str, ...], state: dict[str, Any], param: Tensor) -> bool:
    """Lays the moments out as the parameter is; returns whether it has to be staged."""
    dtype = accumulation_dtype(param.dtype)
    for name in names:
        moment = state[name]
        fits = moment.dtype == dtype and moment.device == param.device
        if not fits or not same_layout(moment, param):
            state[name] = torch.empty_like(param, dtype=dtype).copy_(moment)
    return dtype != param.dtype or not same_layout(state[names[0]], param)
