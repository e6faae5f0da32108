"""What a step works on: found once, and looked over at every step at the cost of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any, Protocol

import torch
from torch import Tensor

from lightning_accum.optim.weight_decay import WeightDecay


class Planned(Protocol):
    """An optimizer, as far as its plan needs to know it."""

    param_groups: list[dict[str, Any]]
    weight_decay: WeightDecay
    _path_options: tuple[str, ...]

    @property
    def state(self) -> Any:
        """The state of each parameter."""

    def _ready_state(self, group: dict[str, Any], param: Tensor) -> dict[str, Any]: ...

    def _step_groups(self, group: dict[str, Any], batch: Batch) -> Any: ...


def as_real(tensor: Tensor) -> Tensor:
    """The tensor itself, or a complex one seen as pairs of numbers."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def same_layout(tensor: Tensor, other: Tensor) -> bool:
    """Whether elements of two tensors of one shape lie in memory in the same order."""
    return all(
        size == 1 or one == two
        for size, one, two in zip(tensor.shape, tensor.stride(), other.stride(), strict=True)
    )


class Batch:
    """The parameters of one group that have a gradient, with their states.

    Attributes:
        params: the parameters.
        states: their states, begun.
        step_groups: the parameters by backend, for an optimizer that has several.
    """

    def __init__(
        self, optimizer: Planned, group: dict[str, Any], present: list[bool] | None
    ) -> None:
        self._members = list(group["params"])
        self._present = present
        self._options = _options(optimizer, group)
        self.params = self._members
        if present is not None:
            self.params = [p for p, has in zip(self._members, present, strict=True) if has]
        self.states = [optimizer._ready_state(group, param) for param in self.params]
        self._kind = self._first()
        self._lie = [param.stride() for param in self.params]
        self._strides: list[tuple[int, ...]] | None = None
        self.step_groups = optimizer._step_groups(group, self)

    def _first(self) -> tuple[torch.dtype, torch.device] | None:
        return (self.params[0].dtype, self.params[0].device) if self.params else None

    def fits(self, optimizer: Planned, group: dict[str, Any], present: list[bool] | None) -> bool:
        """Whether parameters, those that have a gradient, and the options are still the same."""
        return (
            _same(self._members, group["params"])
            and self._present == present
            and self._options == _options(optimizer, group)
            and self._kind == self._first()
            and all(members.stands() for members in self.step_groups)
        )

    def laid_out(self, strides: list[tuple[int, ...]], grads: list[Tensor]) -> bool:
        """Whether the gradients are dense, and lie in memory as their parameters did and do."""
        if strides != self._strides:
            pairs = zip(grads, self.params, strict=True)
            if not all(g.layout is torch.strided and same_layout(g, p) for g, p in pairs):
                return False
            if self._lie != [param.stride() for param in self.params]:
                return False
            self._strides = strides
        return True

    def lay_out(self, grads: list[Tensor]) -> list[Tensor]:
        """The gradients, those that lie in memory otherwise than their parameters copied."""
        return [
            g if same_layout(g, p) else torch.empty_like(p).copy_(g)
            for g, p in zip(grads, self.params, strict=True)
        ]


class Plan:
    """The batches of an optimizer."""

    def __init__(self, optimizer: Planned, present: list[list[bool] | None]) -> None:
        groups = optimizer.param_groups
        self.batches = [Batch(optimizer, g, p) for g, p in zip(groups, present, strict=True)]
        self._states = list(optimizer.state.values())

    @classmethod
    def of(cls, optimizer: Planned, known: Plan | None) -> tuple[Plan, list[list[Tensor]]]:
        """The plan for the gradients that are there, the known one if it fits, and the gradients.

        Raises:
            RuntimeError: if a gradient is sparse, or of another shape than its parameter.
            ValueError: if the state of a parameter cannot be its own.
        """
        groups = optimizer.param_groups
        grads = [[g for p in group["params"] if (g := p.grad) is not None] for group in groups]
        present = [
            None
            if len(own) == len(group["params"])
            else [p.grad is not None for p in group["params"]]
            for own, group in zip(grads, groups, strict=True)
        ]
        strides = [[g.stride() for g in own] for own in grads]
        if (
            known is not None
            and known._fits(optimizer, present)
            and all(map(Batch.laid_out, known.batches, strides, grads))
        ):
            return known, grads
        for own, group in zip(grads, groups, strict=True):
            _check_gradients(optimizer, [p for p in group["params"] if p.grad is not None], own)
        plan = cls(optimizer, present)
        for i, batch in enumerate(plan.batches):
            if not batch.laid_out(strides[i], grads[i]) and not groups[i]["differentiable"]:
                grads[i] = batch.lay_out(grads[i])
        return plan, grads

    def _fits(self, optimizer: Planned, present: list[list[bool] | None]) -> bool:
        groups = optimizer.param_groups
        return (
            len(self.batches) == len(groups)
            # states that were loaded, moved or dropped are other dicts
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
        *(group.get(name) for name in optimizer._path_options),
    )


def _check_gradients(optimizer: Planned, params: list[Tensor], grads: list[Tensor]) -> None:
    for param, grad in zip(params, grads, strict=True):
        if grad.shape != param.shape:  # the data of the parameter was replaced
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
    """Raises if a CUDA graph would keep the numbers of this one step for ever."""
    if device.type != "cuda" or group["capturable"]:
        return
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "A step that is captured in a CUDA graph should count on the device. Found"
            " `capturable = False`: make the optimizer with `capturable=True`."
        )
