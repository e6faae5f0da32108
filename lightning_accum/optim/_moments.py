"""Optimizers that step by a first and a second moment: their states, scales and backends."""

from __future__ import annotations

from collections.abc import Mapping
from operator import not_
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Unpack

from lightning_accum._checks import check_mapping
from lightning_accum._compat import foreach
from lightning_accum.functional.optimization import Number, bias_correction, rectification
from lightning_accum.optim._kernels import (
    Coefficients,
    compiled_step,
    fused_step,
    kernel_step,
    listed_step,
    pure_pass,
)
from lightning_accum.optim._moment_states import begin, check_state, check_values, prepare
from lightning_accum.optim._options import MomentOptions, check, check_options, check_rectifies
from lightning_accum.optim._plan import Batch, StepGroup, Traits, step_groups
from lightning_accum.optim.base import GenericAdaptiveOptimizer, Group, Params, State
from lightning_accum.optim.weight_decay import WeightDecay, decay_terms, decayed, warn_of_flips
from lightning_accum.sparse.tensor_lists import CHUNK

Scales = tuple[Number, Number, Number]


def _scales(group: dict[str, Any], rate: Number, step: Number, rectify: bool) -> Scales:
    """Returns size, root and floor of Adam's step, or of RAdam's."""
    first, second = (bias_correction(beta, step) for beta in group["betas"])
    trust = rectification(step, group["betas"][1]) if rectify else 1.0
    # The bias correction of the second moment scales the whole step, or its root only.
    folded = group.get("optimized_update", rectify)
    size, root = (second**0.5, 1.0) if folded else (1.0, second**-0.5)
    size = rate * trust * size / first
    if not rectify:
        return size, root, group["eps"]
    momentum = rate / first if group["degenerate_to_sgd"] else 0.0 * rate
    if isinstance(trust, Tensor):
        # `torch.where` between two Python floats would give float32.
        adaptive = (trust > 0).to(trust.dtype)
        floor = adaptive * group["eps"] + (1.0 - adaptive)
        return torch.where(trust > 0, size, momentum), adaptive * root, floor
    return (size, root, group["eps"]) if trust > 0 else (momentum, 0.0, 1.0)


def torch_step(
    group: dict[str, Any],
    members: StepGroup,
    grads: list[Tensor],
    k: Coefficients,
    belief: bool,
    rate: Number,
    step: int,
) -> None:
    """Steps parameters of one count by the backend of their step group."""
    columns = members.columns(grads)
    if members.backend == "fused":
        # All share one count tensor, since one for each would cost more than the kernel.
        count = torch.full((), float(step), dtype=torch.float32, device=members.device)
        eps = group["eps"]
        if group["optimized_update"]:  # from ε added to √v to ε added to √v̂
            eps /= bias_correction(group["betas"][1], step) ** 0.5
        counts = [count] * len(members.params)
        fused_step(columns, counts, group, rate, eps, members.staged)
    elif members.backend == "compiled":
        compiled_step(columns, k, belief)
    else:
        together = _together(group["foreach"], members.device)
        listed_step(columns, k, belief, members.staged, together)


def _together(foreach: bool | None, device: torch.device) -> float:
    """Returns the number of elements of a chunk, which is limited on the CPU only."""
    if foreach is None:
        return CHUNK if device.type == "cpu" else float("inf")
    return float("inf") if foreach else 0.0


class MomentOptimizer(GenericAdaptiveOptimizer):
    """Base of the optimizers whose step is ``size * m / (root * sqrt(v) + floor)``.

    A subclass may define the learning rate of a step in :meth:`rate`. This class chooses the
    fastest backend for each parameter.

    Args:
        params: parameters, named parameters, or parameter groups.
        lr: learning rate.
        betas: decays of the first and the second moment.
        eps: keeps the denominator from zero.
        weight_decay: a number, or a :class:`WeightDecay`.
        own: the options of the subclass, by name.
        maximize: see :class:`MomentOptions`, as for those below.
        foreach: whether to step lists of tensors.
        capturable: whether a step can be captured in a CUDA graph.
        differentiable: whether autograd follows the step.
        defaults: further options of every group.
    """

    _second: ClassVar[str] = "exp_avg_sq"
    _belief: ClassVar[bool] = False
    _rectifies: ClassVar[bool] = False
    _is_adam: ClassVar[bool] = False  # whether torch's fused kernel of Adam computes this step
    _warned_of_flips = False
    plan_options = (
        *GenericAdaptiveOptimizer.plan_options,
        *("foreach", "fused", "compile", "amsgrad", "optimized_update"),
    )

    def __init__(
        self,
        params: Params,
        lr: float | Tensor,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float | WeightDecay,
        own: dict[str, Any],
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        defaults: dict[str, Any] | None = None,
    ) -> None:
        options = {
            "amsgrad": False,
            **own,
            "weight_decay": weight_decay,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
        }
        further = {} if defaults is None else defaults
        check_mapping("defaults", further)
        known = sorted({"lr", "betas", "eps", *options} & set(further))
        if known:
            raise ValueError(
                "Argument `defaults` should hold options that are not arguments themselves. Found"
                f" {known}: pass them by name."
            )
        super().__init__(params, {**further, **options}, lr, betas, eps)

    @property
    def _steps_by_formula(self) -> bool:
        """Whether a step is that of this class, rather than a ``step_param`` of a subclass."""
        return type(self).step_param is MomentOptimizer.step_param

    @property
    def _is_scheduled(self) -> bool:
        """Whether a subclass defines the learning rate of a step."""
        return type(self).rate is not MomentOptimizer.rate

    def rate(self, group: Group, step: Number) -> Number:
        """Returns the learning rate of a step, which also scales decoupled weight decay."""
        lr: Number = group["lr"]
        return lr

    def validate(self, group: Group) -> None:
        """Raises a ``ValueError`` if an option of a group is out of its range."""
        super().validate(group)
        check_options(group, "amsgrad", "optimized_update", "degenerate_to_sgd", "rectify")
        check_options(group, "compile", "foreach", "fused")
        check_rectifies(group)
        for other in ("differentiable", "foreach"):
            for name in ("fused", "compile", "foreach") if group[other] else ():
                if name != other:
                    check(name, group.get(name), not_, f"left out where `{other} = True`")

    def _moment_names(self, group: Group) -> tuple[str, ...]:
        """Returns the names of the moments in a state, which are torch's."""
        names = ("exp_avg", self._second)
        return (*names, f"max_{self._second}") if group["amsgrad"] else names

    def _coefficients(
        self, group: Group, terms: Scales, rate: Number, step: Number
    ) -> Coefficients:
        beta1, beta2 = group["betas"]
        scales = _scales(group, rate, step, group.get("rectify", self._rectifies))
        inner = group["eps"] if self._belief else 0.0
        return Coefficients(*terms, beta1, beta2, inner, *scales)

    # ------------------------------------------------------------------ states
    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        """Begins the count and the moments at zero, in float32 or wider."""
        begin(state, self._moment_names(group), param)

    def ready_state(self, group: Group, param: Tensor) -> State:
        """Returns the state of a parameter, checked and in the form that steps use."""
        state = super().ready_state(group, param)
        if self._steps_by_formula:
            names = self._moment_names(group)
            check_state(type(self).__name__, names, param, state)
            prepare(state, names, param, group["capturable"])
        return state

    def _check_state(self, group: Group, param: Tensor, state: Mapping[str, Any]) -> None:
        if self._steps_by_formula:
            self.validate(group)
            if group["differentiable"] and param.is_leaf and param.requires_grad:
                raise ValueError(
                    "Option `differentiable` of a loaded state should be False for parameters that"
                    " are leaves, which autograd does not follow through a step. Found True: set"
                    " it to False in `param_groups` of the state."
                )
            names = self._moment_names(group)
            check_state(type(self).__name__, names, param, state)
            check_values(names, param, state)

    # ------------------------------------------------------------------ one parameter
    def step_param(self, state: State, group: Group, grad: Tensor, param: Tensor) -> None:
        """Steps one parameter by plain tensor operations, which autograd and graphs can follow."""
        # Powers of the float32 count would lose digits.
        step = (state["step"].double() if group["capturable"] else state["step"]) + 1
        rate = self.rate(group, step)
        grad = decayed(self.weight_decay, param, grad, {**group, "lr": rate})
        # The gradient already contains the weight decay and the sign.
        k = self._coefficients(group, (1.0, 1.0, 0.0), rate, step)
        names = self._moment_names(group)
        moments = [state[name] for name in names]
        new, *moments = pure_pass(param, grad, moments, k, self._belief)
        param.copy_(new)
        for name, moment in zip(names, moments, strict=True):
            if group["differentiable"]:
                state[name] = moment
            else:  # in place, since a CUDA graph writes to the same memory
                state[name].copy_(moment)
        state["step"] += 1

    # ------------------------------------------------------------------ many at once
    def step_groups(self, group: Group, batch: Batch) -> list[StepGroup]:
        """Sorts the parameters of a group by the backend that steps them."""
        by_formula = self._steps_by_formula
        traits = Traits(
            optimizer=type(self).__name__,
            decay=type(self.weight_decay).__name__,
            moments=self._moment_names(group) if by_formula else (),
            by_formula=by_formula and type(self.weight_decay) is WeightDecay,
            is_adam=self._is_adam,
            scheduled=self._is_scheduled,
        )
        return step_groups(traits, group, batch)

    def _step_batch(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        for members in batch.step_groups:
            own = batch.of(members, grads)
            if members.backend == "single":
                self._step_each(group, members.params, members.states, own)
            elif group["capturable"]:  # each count is read on the device
                columns = members.columns(own)
                counts = [state["step"] for state in members.states]
                foreach("add_")(counts, 1)
                fused_step(columns, counts, group, group["lr"], group["eps"], members.staged)
            else:
                self._step_group(group, members, own)

    def _step_group(self, group: Group, members: StepGroup, grads: list[Tensor]) -> None:
        """Steps parameters with counts on the host; those of equal counts together."""
        counts = [state["step"] for state in members.states]
        if counts.count(counts[0]) != len(counts):
            for count in set(counts):
                which = [i for i, own in enumerate(counts) if own == count]
                part, own = members.part(which), [grads[i] for i in which]
                part.find(own)
                self._step_group(group, part, own)
            return
        step = counts[0] + 1
        rate = self.rate(group, step)
        if isinstance(rate, Tensor) and rate.is_cpu:
            rate = rate.item()
        if self._is_scheduled:  # a subclass's rate may have called anything
            members.find(grads)
        sign = -1.0 if group["maximize"] else 1.0
        terms = (sign, *decay_terms(group, rate))
        if not isinstance(terms[1], Tensor) and terms[1] <= 0 and not self._warned_of_flips:
            self._warned_of_flips = True
            warn_of_flips(type(self).__name__, group, rate)
        k = self._coefficients(group, terms, rate, step)
        # A backend that was asked for is used.
        asked = members.backend == "compiled" or group.get("fused") or group["foreach"] is not None
        if (
            asked
            or not members.found
            or not kernel_step(members.params, members.places, k, self._belief)
        ):
            torch_step(group, members, grads, k, self._belief, rate, step)
        for state in members.states:
            state["step"] = step


class AdamFormula(MomentOptimizer):
    """Base of the optimizers that step by Adam's formula, whatever their rate."""

    _is_adam = True

    def __init__(
        self,
        params: Params,
        lr: float | Tensor,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float | WeightDecay,
        own: dict[str, Any],
        *,
        fused: bool | None = None,
        **options: Unpack[MomentOptions],
    ) -> None:
        own = {**own, "fused": fused}
        super().__init__(params, lr, betas, eps, weight_decay, own, **options)
