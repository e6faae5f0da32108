"""The base of optimizers that step by a first and a second moment."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightning_accum.functional.moments import Number, bias_correction
from lightning_accum.optim._checks import check
from lightning_accum.optim._chunks import CHUNK
from lightning_accum.optim._kernels import (
    Coefficients,
    compiled_step,
    fused_step,
    listed_step,
    pure_pass,
)
from lightning_accum.optim._plan import Batch
from lightning_accum.optim._routes import Route, routes
from lightning_accum.optim._scales import Scales
from lightning_accum.optim.base import GenericAdaptiveOptimizer, Group, Params, State
from lightning_accum.optim.weight_decay import WeightDecay, decay_terms
from lightning_accum.updates.part import accumulation_dtype


class MomentOptimizer(GenericAdaptiveOptimizer):
    """Base of the optimizers whose step is ``size * m / (root * sqrt(v) + floor)``.

    A subclass says what the three numbers are, in :meth:`_scales`, and at what rate it steps, in
    :meth:`rate`. This class goes the fastest way there is for each parameter.
    """

    _second: ClassVar[str] = "exp_avg_sq"
    _belief: ClassVar[bool] = False
    _adam: ClassVar[bool] = False  # whether the formula is Adam's
    _scheduled: ClassVar[bool] = False  # whether the rate depends on the step
    _path_options = (
        *GenericAdaptiveOptimizer._path_options,
        *("foreach", "fused", "compile", "amsgrad", "optimized_update"),
    )

    def __init__(
        self,
        params: Params,
        lr: float | Tensor,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float | WeightDecay,
        **options: Any,
    ) -> None:
        if not isinstance(weight_decay, WeightDecay):
            weight_decay = WeightDecay(weight_decay)
        options = {"amsgrad": False, **options, "weight_decay": weight_decay}
        super().__init__(params, options, lr, betas, eps)

    @abstractmethod
    def _scales(self, group: Group, rate: Number, step: Number) -> Scales:
        """Size, root and floor of a step."""

    def validate(self, group: Group) -> None:
        """Raises a ``ValueError`` if an option of a group is out of its range."""
        super().validate(group)
        for other in ("differentiable", "foreach"):
            if group[other]:
                for name in ("fused", "compile"):
                    check(name, group.get(name), _unset, f"left out where `{other} = True`")
        if group["differentiable"]:
            check("foreach", group["foreach"], _unset, "left out where `differentiable = True`")

    def _names(self, group: Group) -> tuple[str, ...]:
        """The moments in a state, by torch's names for them."""
        names = ("exp_avg", self._second)
        return (*names, f"max_{self._second}") if group["amsgrad"] else names

    def _coefficients(self, group: Group, terms: Scales, scales: Scales) -> Coefficients:
        beta1, beta2 = group["betas"]
        inner = group["eps"] if self._belief else 0.0
        return Coefficients(*terms, beta1, beta2, inner, *scales)

    # ------------------------------------------------------------------ one parameter
    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        """Begins the moments at zero, in float32 or wider."""
        for name in self._names(group):
            state[name] = torch.zeros_like(param, dtype=accumulation_dtype(param.dtype))

    def step_param(self, state: State, group: Group, grad: Tensor, param: Tensor) -> None:
        """Steps one parameter by plain tensor operations, which autograd and graphs can follow."""
        step = state["step"].double() if group["capturable"] else state["step"]
        scales = self._scales(group, self.rate(group, step), step)
        # what is not an identity here, the base has seen to
        k = self._coefficients(group, (1.0, 1.0, 0.0), scales)
        names = self._names(group)
        moments = [state[name] for name in names]
        new, *moments = pure_pass(param, grad, moments, k, self._belief)
        param.copy_(new)
        for name, moment in zip(names, moments, strict=True):
            if group["differentiable"]:
                state[name] = moment
            else:  # in place, for a graph that is replayed
                state[name].copy_(moment)

    # ------------------------------------------------------------------ many at once
    def _step_batch(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        if batch.routes is None:
            batch.routes = routes(self, group, batch)
        for route in batch.routes:
            own = grads if len(batch.routes) == 1 else [grads[i] for i in route.index]
            if route.way == "single":
                for param, state, grad in zip(route.params, route.states, own, strict=True):
                    self._step_one(group, state, grad, param)
            elif group["capturable"]:  # the counts may differ, for nothing depends on them here
                counts = [state["step"] for state in route.states]
                torch._foreach_add_(counts, 1)
                columns = route.columns(own, self._names(group))
                fused_step(columns, counts, group, group["lr"], group["eps"], route.staged)
            else:
                self._step_route(group, route, own)

    def _step_route(self, group: Group, route: Route, grads: list[Tensor]) -> None:
        """Steps parameters whose steps the host counts, those of one count together."""
        counts = [state["step"] for state in route.states]
        if counts.count(counts[0]) != len(counts):
            for count in set(counts):
                which = [i for i, own in enumerate(counts) if own == count]
                self._step_route(group, route.part(which), [grads[i] for i in which])
            return
        step = counts[0] + 1
        rate = self.rate(group, step)
        if isinstance(rate, Tensor) and rate.is_cpu:
            rate = rate.item()
        columns = route.columns(grads, self._names(group))
        if route.way == "fused":
            # one for all: a tensor for each costs more than the kernel
            count = torch.full((), float(step), dtype=torch.float32, device=route.device)
            eps = group["eps"]
            if group["optimized_update"]:  # ε beside √v is this beside √v̂
                eps /= bias_correction(group["betas"][1], step) ** 0.5
            fused_step(columns, [count] * len(counts), group, rate, eps, route.staged)
        else:
            sign = -1.0 if group["maximize"] else 1.0
            terms = (sign, *decay_terms(group, rate))
            k = self._coefficients(group, terms, self._scales(group, rate, step))
            if route.way == "compiled":
                compiled_step(columns, k, self._belief)
            else:
                together = _together(group["foreach"], route.device)
                listed_step(columns, k, self._belief, route.staged, together)
        for state in route.states:
            state["step"] = step


def _unset(option: bool | None) -> bool:
    return not option


def _together(foreach: bool | None, device: torch.device) -> float:
    """Elements of a chunk: a device other than the CPU is best given everything at once."""
    if foreach is None:
        return CHUNK if device.type == "cpu" else float("inf")
    return float("inf") if foreach else 0.0
