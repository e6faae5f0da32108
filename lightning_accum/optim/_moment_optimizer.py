"""Optimizers that step by a first and a second moment: their states, scales and backends."""

import inspect
import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from typing_extensions import Unpack

from lightning_accum._checks import check_mapping, check_taken, check_value
from lightning_accum._compat.torch_internals import foreach
from lightning_accum.functional.dtypes import at_least_float32
from lightning_accum.optim import _kernels as kernels
from lightning_accum.optim._options import (
    PLANNED,
    AdamOptions,
    MomentOptions,
    check_options,
    check_rectifies,
)
from lightning_accum.optim._states import as_real, check_state, check_values, prepare
from lightning_accum.optim.base import Batch, GenericAdaptiveOptimizer, Group, Params, State
from lightning_accum.optim.weight_decay import (
    Number,
    WeightDecay,
    decay_terms,
    decayed,
    is_remote,
)
from lightning_accum.sparse.moment_steps import dense, same_layout

Scales = tuple[Number, Number, Number]
_PLAIN = (Tensor, torch.nn.Parameter)
_DECAY_HINTS = {
    "weight_decouple": "pass `weight_decay=WeightDecay(..., weight_decouple=...)`",
    "decoupled_weight_decay": "pass `weight_decay=WeightDecay(..., weight_decouple=...)`",
    "amsgrad": "take `AMSGrad`",
    "absolute": "pass `weight_decay=WeightDecay(..., absolute=...)`",
}


def rectification(step: Number, beta2: float) -> Number:
    """Returns the rectification ``r_t`` of :class:`RAdam`, zero for its first steps."""
    rho_inf = 2.0 / (1.0 - beta2) - 1.0
    power = beta2**step
    rho = rho_inf - 2.0 * step * power / (1.0 - power)
    if rho_inf < 5.0:  # ρ_t stays below ρ∞
        return step * 0.0
    scale = rho_inf / ((rho_inf - 4.0) * (rho_inf - 2.0))
    if isinstance(rho, Tensor):
        trusted = rho.clamp(min=5.0)
        value = ((trusted - 4.0) * (trusted - 2.0) * scale / trusted).sqrt()
        return torch.where(rho >= 5.0, value, 0.0)
    return math.sqrt((rho - 4.0) * (rho - 2.0) * scale / rho) if rho >= 5.0 else 0.0


def _scales(group: dict[str, Any], rate: Number, step: Number, rectify: bool) -> Scales:
    """Returns size, root and floor of Adam's step, or of RAdam's."""
    first, second = (1.0 - beta**step for beta in group["betas"])
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


class MomentOptimizer(GenericAdaptiveOptimizer):
    """Base of the optimizers whose step is ``size * m / (root * sqrt(v) + floor)``."""

    # A subclass may define the learning rate of a step in `rate`. The fastest backend is chosen for
    # each parameter.

    _second: ClassVar[str] = "exp_avg_sq"
    _belief: ClassVar[bool] = False
    _rectifies: ClassVar[bool] = False
    _is_adam: ClassVar[bool] = True  # whether torch's fused kernel of Adam computes this step

    def __init__(
        self,
        params: Params,
        lr: float | Tensor,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float | WeightDecay,
        own: dict[str, Any],  # the options of the subclass, by name
        **given: Unpack[AdamOptions],
    ) -> None:
        known = (AdamOptions if self._is_adam else MomentOptions).__annotations__
        if further := {k: v for k, v in given.items() if k not in known}:
            named = dict.fromkeys(inspect.signature(type(self)).parameters) | dict(known)
            named = {k: v for k, v in named.items() if k not in ("params", "options")}
            check_taken(type(self).__name__, further, named, hints=_DECAY_HINTS)
        options = {"amsgrad": False, "foreach": None, **own, "weight_decay": weight_decay, **given}
        further = options.pop("defaults", None)
        further = {} if further is None else further
        check_mapping("defaults", further)
        if self._is_adam:
            options.setdefault("fused", None)
        twice = sorted({"lr", "betas", "eps", *options, *known} & set(further))
        should = "options that are not arguments themselves"
        check_value(not twice, "defaults", twice, should, "pass these by name")
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
        check_options(group, *PLANNED, "degenerate_to_sgd", "rectify", "warmup")
        check_rectifies(group)
        pairs = ("differentiable", "fused"), ("differentiable", "foreach"), ("foreach", "fused")
        for other, name in pairs:
            value = group[other] and group.get(name)
            check_value(not value, name, value, f"left out where `{other} = True`")

    def _moment_names(self, group: Group) -> tuple[str, ...]:
        """Returns the names of the moments in a state, which are torch's."""
        names = ("exp_avg", self._second)
        return (*names, f"max_{self._second}") if group["amsgrad"] else names

    def _coefficients(
        self, group: Group, terms: Scales, rate: Number, step: Number
    ) -> kernels.StepCoefficients:
        beta1, beta2 = group["betas"]
        scales = _scales(group, rate, step, group.get("rectify", self._rectifies))
        inner = group["eps"] if self._belief else 0.0
        return kernels.StepCoefficients(*terms, beta1, beta2, inner, *scales)

    # ------------------------------------------------------------------ states
    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        """Begins the count and the moments at zero, in float32 or wider."""
        state["step"] = 0
        for name in self._moment_names(group):
            state[name] = torch.zeros_like(param, dtype=at_least_float32(param.dtype))

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
        new, *moments = kernels.pure_pass(param, grad, moments, k, self._belief)
        param.copy_(new)
        for name, moment in zip(names, moments, strict=True):
            if group["differentiable"]:
                state[name] = moment
            else:  # in place, since a CUDA graph writes to the same memory
                state[name].copy_(moment)
        state["step"] += 1

    # ------------------------------------------------------------------ many at once
    def step_groups(self, group: Group, batch: Batch) -> list[kernels.StepGroup]:
        """Sorts parameters by the backend that steps them, with moments in its layout."""
        names = self._moment_names(group) if self._steps_by_formula else ()
        found: dict[tuple[Any, ...], kernels.StepGroup] = {}
        for i, (param, state) in enumerate(zip(batch.params, batch.states, strict=True)):
            if len(names) > 2 and names[2] not in state:  # the option was switched on since
                state[names[2]] = state[names[1]].clone()
            backend, staged = self._backend(group, param), False
            # Autograd follows the moments unchanged, and a subclass of tensors has its own layout.
            own = () if group["differentiable"] or type(param) not in _PLAIN else names
            if own:
                staged = _fit(own, state, as_real(param))
            # A staged group has one step count; a captured step needs one for each parameter.
            if backend == "single" or (staged and group["capturable"]):
                backend, staged = "single", False
            count = state.get("step")
            count = count if isinstance(count, int) else None  # on a device, each has its own
            key = (backend, staged, own, param.device, param.dtype, count)
            found.setdefault(key, kernels.StepGroup(backend, staged, param.device, own)).add(
                i, param, state
            )
        return list(found.values())

    def _backend(self, group: Group, param: Tensor) -> kernels.Backend:
        plain = self._is_plain(param)
        # The kernel reads a rate on the device, but no rate or ε from a count on the device.
        computed = group["capturable"] and (self._is_scheduled or group.get("optimized_update"))
        here = param.device.type in ("cpu", "cuda")
        fusable = self._is_adam and plain and here and not computed
        if group.get("fused") and not fusable:
            raise ValueError(
                "Argument `fused` should be left out for parameters that are not plain"
                " floating-point tensors on a CPU or a CUDA device, with `capturable=True` for a"
                " rate or ε that depends on the step, and for a subclass with another `step_param`"
                f" or weight decay. Found `fused = True` for a `{type(param).__name__}` with"
                f" `dtype = {param.dtype}` on {param.device}, in `{type(self).__name__}` with"
                f" `{type(self.weight_decay).__name__}`."
            )
        if not plain or group["differentiable"]:
            return "single"
        if fusable and group.get("fused") is not False and group["foreach"] is None:
            return "fused"
        return "single" if group["capturable"] or is_remote(group["lr"]) else "listed"

    def _is_plain(self, param: Tensor) -> bool:
        """Returns whether no other step, weight decay or operations would have to be called."""
        by_formula = self._steps_by_formula and type(self.weight_decay) is WeightDecay
        return by_formula and type(param) in _PLAIN and param.is_floating_point()

    def _step_batch(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        for members in batch.step_groups:
            own = batch.of(members, grads)
            if members.backend == "single":
                self._step_each(group, members.params, members.states, own)
            elif group["capturable"]:  # each count is read on the device
                columns = members.columns(own)
                counts = [state["step"] for state in members.states]
                foreach("add_")(counts, 1)
                rate, eps = group["lr"], group["eps"]
                kernels.fused_step(columns, counts, group, rate, eps, members.staged)
            else:
                self._step_group(group, members, own)

    def _step_group(self, group: Group, members: kernels.StepGroup, grads: list[Tensor]) -> None:
        """Steps parameters of one count, which is on the host."""
        step = members.states[0]["step"] + 1
        rate = self.rate(group, step)
        if isinstance(rate, Tensor) and rate.is_cpu:
            rate = rate.item()
        if self._is_scheduled:  # a subclass's rate may have called anything
            members.find(grads)
        terms = (-1.0 if group["maximize"] else 1.0, *decay_terms(group, rate))
        k = self._coefficients(group, terms, rate, step)
        # A backend that was asked for is used.
        asked = group.get("fused") or group["foreach"] is not None
        if asked or not members.step_by_kernel(k, self._belief):
            members.step_by_torch(group, grads, k, self._belief, rate, step)
        for state in members.states:
            state["step"] = step


def _fit(names: tuple[str, ...], state: dict[str, Any], param: Tensor) -> bool:
    """Gives moments the parameter's layout, and returns whether steps have to be staged."""
    dtype = at_least_float32(param.dtype)
    for name in names:
        moment = state[name]
        fits = moment.dtype == dtype and moment.device == param.device
        if not fits or not same_layout(moment, param) or not dense(moment):
            state[name] = torch.empty_like(param, dtype=dtype).copy_(moment)
    return dtype != param.dtype or not same_layout(state[names[0]], param)
