"""What adaptive optimizers share, and the template that a new one fills."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from lightning_accum.functional.moments import Number
from lightning_accum.optim._checkpoint import seal, unseal
from lightning_accum.optim._checks import check, is_betas, is_rate, non_negative
from lightning_accum.optim._plan import Batch, Plan, as_real
from lightning_accum.optim.weight_decay import WeightDecay, decay_terms

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
State = dict[str, Any]
Group = dict[str, Any]


class GenericAdaptiveOptimizer(torch.optim.Optimizer, ABC):
    r"""Base of optimizers that keep statistics of each parameter's gradient.

    A new optimizer defines :meth:`step_param`, and :meth:`init_state` where it keeps anything. It
    is then handed one parameter at a time, with its gradient and its state, in which
    ``state["step"]`` already counts this step. What the base has seen to by then: ``maximize``,
    weight decay (the options of :class:`WeightDecay` are in every group), complex parameters,
    which come as real ones with a last axis of two, and gradients that are not dense, which it
    refuses.

    All options are in ``param_groups``. The state holds tensors and numbers alone; tensors keep
    their dtype through a checkpoint, so that float32 moments of bfloat16 parameters resume bit
    for bit. A loaded state is copied, never shared.

    Args:
        params: parameters, named parameters, or parameter groups; groups are copied.
        defaults: further options and their defaults, which join those of all optimizers:
            ``weight_decay``, ``maximize``, ``capturable`` and ``differentiable``.
        lr: learning rate :math:`\alpha \ge 0`, a number or a one-element tensor.
        betas: :math:`\beta_1, \beta_2` in [0, 1), decays of the first and the second moment.
        eps: :math:`\epsilon \ge 0`, which keeps denominators from zero.

    Raises:
        ValueError: if an option is out of its range, in any group.

    Example:
        >>> import torch
        >>> class SignOfMomentum(GenericAdaptiveOptimizer):
        ...     def __init__(self, params, lr=1e-3, beta=0.9):
        ...         super().__init__(params, {}, lr, (beta, 0.0), 0.0)
        ...
        ...     def init_state(self, state, group, param):
        ...         state["mean"] = torch.zeros_like(param)
        ...
        ...     def step_param(self, state, group, grad, param):
        ...         state["mean"].lerp_(grad, 1 - group["betas"][0])
        ...         param.sub_(group["lr"] * state["mean"].sign())
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> weight.grad = torch.tensor([3.0, -4.0])
        >>> SignOfMomentum([weight], lr=0.25).step()
        >>> weight.tolist()
        [0.75, 1.25]
    """

    # a change of any of these asks for a new plan
    _path_options: tuple[str, ...] = ("capturable", "differentiable")

    def __init__(
        self,
        params: Params,
        defaults: dict[str, Any],
        lr: float | Tensor,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        self._plan: Plan | None = None
        shared = {"maximize": False, "capturable": False, "differentiable": False}
        options = {**WeightDecay().defaults(), **shared, **_flat(defaults)}
        super().__init__(params, {**options, "lr": lr, "betas": betas, "eps": eps})

    # ------------------------------------------------------------------ the template
    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        """Fills the state of a parameter, before its first step.

        Args:
            state: to be filled with tensors and numbers; ``state["step"]`` is there and zero.
            group: the options of its group.
            param: the parameter.
        """

    @abstractmethod
    def step_param(self, state: State, group: Group, grad: Tensor, param: Tensor) -> None:
        """Changes a parameter, in place.

        Args:
            state: its state, to be changed in place; ``state["step"]`` counts from one.
            group: the options of its group.
            grad: its gradient, of the shape of ``param``; it is not to be written to.
            param: the parameter.
        """

    def rate(self, group: Group, step: Number) -> Number:
        """The learning rate of a step, by which decoupled decay goes too.

        Args:
            group: the options of a group.
            step: counts from one; a number, or a 0-dim tensor in a ``capturable`` group.
        """
        lr: Number = group["lr"]
        return lr

    def validate(self, group: Group) -> None:
        """Raises a ``ValueError`` if an option of a group is out of its range."""
        check("lr", group["lr"], is_rate, "a non-negative learning rate")
        check("betas", group["betas"], is_betas, "two numbers in [0, 1)")
        check("eps", group["eps"], non_negative, "a non-negative number")
        check("weight_decay", group["weight_decay"], non_negative, "a non-negative number")

    # ------------------------------------------------------------------ stepping
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Changes every parameter that has a gradient.

        Args:
            closure: is called first, with gradients, where there is one.

        Returns:
            What ``closure`` returned.

        Raises:
            ValueError: if a gradient is sparse; then no parameter has changed.
        """
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        plan, grads = Plan.of(self, self._plan)
        self._plan = None  # not to be relied on after an error
        for group, batch, own in zip(self.param_groups, plan.batches, grads, strict=True):
            if own:
                _refuse_capture(group, own[0].device)
                with torch.set_grad_enabled(group["differentiable"]):
                    self._step_batch(group, batch, own)
        self._plan = plan
        return result

    def _step_batch(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        """Steps the parameters of one group; the place to take many of them at once."""
        for param, state, grad in zip(batch.params, batch.states, grads, strict=True):
            self._step_one(group, state, grad, param)

    def _step_one(self, group: Group, state: State, grad: Tensor, param: Tensor) -> None:
        param, grad = as_real(param), as_real(grad)
        state["step"] += 1
        if group["maximize"]:
            grad = -grad
        if group["weight_decay"]:
            # as the tensor is float32, powers of it would lose digits
            step = state["step"].double() if group["capturable"] else state["step"]
            factor, penalty = decay_terms(group, self.rate(group, step))
            if penalty:
                grad = grad + penalty * param
            else:
                param.mul_(factor)
        self.step_param(state, group, grad, param)

    def _ready_state(self, group: Group, param: Tensor) -> State:
        """The state of a parameter, begun if it has none, and its step where it belongs."""
        state: State = self.state[param]
        if not state:
            state["step"] = 0
            self.init_state(state, group, as_real(param).detach())
        step = state.setdefault("step", 0)
        if group["capturable"]:  # a graph that is replayed counts on the device
            state["step"] = torch.as_tensor(step, dtype=torch.float32, device=param.device)
        elif isinstance(step, Tensor):
            state["step"] = int(step.item())
        return state

    # ------------------------------------------------------------------ groups and checkpoints
    def add_param_group(self, param_group: Group) -> None:
        """Adds a group of parameters.

        Args:
            param_group: ``params``, and options that differ from the defaults. It is copied.

        Raises:
            ValueError: if an option is out of its range.
        """
        group = _flat(param_group)
        for name, default in self.defaults.items():
            # a scheduler writes into a rate that is a tensor: each group has its own
            own = default.clone() if isinstance(default, Tensor) else default
            group.setdefault(name, own)
        self.validate(group)
        group["betas"] = tuple(group["betas"])
        if isinstance(group["lr"], Tensor):
            group["lr"] = group["lr"].reshape(())
        super().add_param_group(group)
        self._plan = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes a copy of a state; the checkpoints of torch's Adam and AdamW are understood.

        Those of torch before 2.7 do not say whether the weights decay apart from their gradient:
        what this optimizer was made with holds.

        Args:
            state_dict: what ``state_dict()`` gave.

        Raises:
            ValueError: if its groups are not of this optimizer's sizes, or hold an option that is
                out of its range.
        """
        handle = self.register_load_state_dict_pre_hook(seal)
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()

    def __setstate__(self, state: dict[str, Any]) -> None:
        defaults = state.get("defaults") or self.defaults
        for group in state["param_groups"]:
            if "decoupled_weight_decay" in group:  # as torch calls it
                group["weight_decouple"] = group.pop("decoupled_weight_decay")
            for name, default in defaults.items():
                group.setdefault(name, default)
            self.validate(group)
            group["betas"] = tuple(group["betas"])
        super().__setstate__(state)
        self._plan = None
        unseal(self.state)


def _flat(options: dict[str, Any]) -> dict[str, Any]:
    """A copy in which a :class:`WeightDecay` is the options that it stands for."""
    decay = options.get("weight_decay")
    return {**options, **decay.defaults()} if isinstance(decay, WeightDecay) else dict(options)


def _refuse_capture(group: Group, device: torch.device) -> None:
    """Raises where a CUDA graph would keep the numbers of this one step for ever."""
    if device.type != "cuda" or group["capturable"]:
        return
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "A step that is captured in a CUDA graph should count on the device. Found"
            " `capturable = False`: make the optimizer with `capturable=True`."
        )
