"""A plan: the parameters, states and layouts of a step, found once and compared at every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, is_
from typing import Any, Protocol

import torch
from torch import Tensor

from lightning_accum.optim.weight_decay import WeightDecay
from lightning_accum.sparse.flat_views import same_layout

_grad = attrgetter("grad")


class Planned(Protocol):
    """The interface of an optimizer that its plan uses.

    Attributes:
        plan_options: options of a group whose change requires a new plan.
    """

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
    """The parameters of one group that have a gradient, with their states.

    Attributes:
        params: the parameters.
        states: their states, with the contents of ``init_state``.
        step_groups: the parameters by backend, if the optimizer has several backends.
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
        """Returns a plan, the known one if it still fits, and the gradients of each group.

        Raises:
            RuntimeError: if a gradient is sparse, or of another shape than its parameter.
            ValueError: if the state of a parameter cannot be its own.
        """
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
    """Calls a method of the template, which should change one of its arguments in place.

    Args:
        method: the method.
        changes: the name of the argument, for the message.
        *args: the arguments.

    Raises:
        TypeError: if it returns what it should have written.
    """
    found = method(*args)
    if found is not None:
        by = {"param": "copy_", "state": "update"}[changes]
        raise TypeError(
            f"`{method.__name__}` of an optimizer should change `{changes}` in place and return"
            f" nothing. Found that it returns a `{type(found).__name__}`, which would be lost: call"
            f" `{changes}.{by}(...)` with it."
        )
