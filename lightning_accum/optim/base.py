"""The base of adaptive optimizers, and the template for a new one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_mapping
from lightning_accum.distributed.shards import any_process, local
from lightning_accum.optim._kernels import count_versions
from lightning_accum.optim._options import PLANNED, check_options
from lightning_accum.optim._states import as_real, seal, unseal, warn_of_no_maximum
from lightning_accum.optim.weight_decay import WeightDecay, check_decay, flattened, is_remote
from lightning_accum.sparse.moment_steps import same_layout

Params = Iterable[Tensor] | Iterable[dict[str, Any]] | Iterable[tuple[str, Tensor]]
State = dict[str, Any]
Group = dict[str, Any]
Found = tuple[list[Tensor], list[Tensor]]  # parameters that have a gradient, and their gradients


class GenericAdaptiveOptimizer(torch.optim.Optimizer):
    r"""Base of optimizers that keep statistics of each parameter's gradient.

    A new optimizer defines :meth:`step_param`, and :meth:`init_state` if it keeps anything. It
    then gets one parameter at a time, with its gradient and its state. The step is its own: it
    counts in its state if it needs a count, and decays the parameter by
    ``grad = self.weight_decay(param, grad, group)`` if it should decay. The base handles
    ``maximize`` and complex parameters, which come as real ones with a last axis of two, rejects
    sparse gradients, and tells autograd that the parameter has changed.

    All options are in ``param_groups``. The state should hold tensors and numbers only; tensors
    keep their dtype through a checkpoint. A loaded state is copied, never shared.

    Args:
        params: parameters, named parameters, or parameter groups; groups are copied.
        defaults: further options and their defaults, which join those of all optimizers:
            ``weight_decay`` (a number or a :class:`WeightDecay`) with its options, ``maximize``,
            ``capturable`` and ``differentiable``.
        lr: learning rate :math:`\alpha \ge 0`, a number or a one-element tensor.
        betas: :math:`\beta_1, \beta_2` in [0, 1), decays of the first and the second moment.
        eps: :math:`\epsilon \ge 0`, which keeps denominators from zero.

    Raises:
        ValueError: if an option is out of its range, in any group.

    Example:
        >>> import torch
        >>> class SignOfMomentum(GenericAdaptiveOptimizer):
        ...     def __init__(self, params, lr=1e-3, beta=0.9, weight_decay=0.0):
        ...         super().__init__(params, {"weight_decay": weight_decay}, lr, (beta, 0.0), 0.0)
        ...
        ...     def init_state(self, state, group, param):
        ...         state["mean"] = torch.zeros_like(param)
        ...
        ...     def step_param(self, state, group, grad, param):
        ...         grad = self.weight_decay(param, grad, group)
        ...         state["mean"].lerp_(grad, 1 - group["betas"][0])
        ...         param.sub_(group["lr"] * state["mean"].sign())
        >>> weight = torch.nn.Parameter(torch.ones(2))
        >>> weight.grad = torch.tensor([3.0, -4.0])
        >>> SignOfMomentum([weight], lr=0.25).step()
        >>> weight.tolist()
        [0.75, 1.25]
    """

    def __init__(
        self,
        params: Params,
        defaults: dict[str, Any],
        lr: float | Tensor,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        check_mapping("defaults", defaults)
        # The batches of the last step, and all states then.
        self._plan: tuple[list[Batch], list[State]] | None = None
        decay = defaults.get("weight_decay", 0.0)
        #: The weight decay, which ``step_param`` calls.
        self.weight_decay = decay if isinstance(decay, WeightDecay) else WeightDecay(decay)
        shared = {"maximize": False, "capturable": False, "differentiable": False}
        options = {**self.weight_decay.defaults(), **shared, **defaults, "weight_decay": decay}
        options = flattened(options, type(self.weight_decay))
        super().__init__(params, {**options, "lr": lr, "betas": betas, "eps": eps})

    # ------------------------------------------------------------------ the template
    def init_state(self, state: State, group: Group, param: Tensor) -> None:
        """Fills the empty state of a parameter, before its first step.

        It is filled with tensors and numbers, among them a count of the steps if one is needed; the
        arguments are those of :meth:`step_param`.
        """

    def step_param(self, state: State, group: Group, grad: Tensor, param: Tensor) -> None:
        """Steps one parameter, in place.

        Args:
            state: its state, to be changed in place.
            group: the options of its group.
            grad: its gradient, of the shape of ``param``, which must not be changed.
            param: the parameter.
        """
        raise NotImplementedError(
            "An optimizer should define `step_param(state, group, grad, param)`. Found none in"
            f" `{type(self).__name__}`: define it in a subclass."
        )

    def validate(self, group: Group) -> None:
        """Raises a ``ValueError`` if an option of a group is out of its range."""
        check_options(group, "lr", "betas", "eps", "maximize", "capturable", "differentiable")
        check_decay(self.weight_decay, group)

    # ------------------------------------------------------------------ stepping
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Changes every parameter that has a gradient.

        Args:
            closure: is called first, with gradients enabled.

        Returns:
            The result of ``closure``.

        Raises:
            RuntimeError: if a gradient is sparse; then no parameter has changed.
            ValueError: if a parameter's state does not fit it; then no parameter has changed.
        """
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        begins = not self.state
        batches, grads = self._planned()
        if begins and _only_looks(self.param_groups, grads):
            return result
        plan, self._plan = self._plan, None  # After an error, the next step makes a new plan.
        for group, batch, own in zip(self.param_groups, batches, grads, strict=True):
            if own:
                refuse_capture(group, own[0].device)
                with torch.set_grad_enabled(group["differentiable"]):
                    self._step_batch(group, batch, own)
        self._plan = plan
        return result

    def _planned(self) -> tuple[list[Batch], list[list[Tensor]]]:
        """Returns a batch and the gradients of each group; makes a plan unless one still fits."""
        groups, (batches, states) = self.param_groups, self._plan or ([], [])
        found = [_with_gradients(group["params"]) for group in groups]
        # A state that was loaded, moved or dropped is another dict.
        if len(batches) == len(groups) and _same(states, self.state.values()):
            each = zip(batches, groups, found, strict=True)
            if all(batch.fits(self, group, own) for batch, group, own in each):
                return batches, [grads for _, grads in found]
        for params, grads in found:
            _check_gradients(self, params, grads)
        batches = [Batch(self, group, own[0]) for group, own in zip(groups, found, strict=True)]
        self._plan = batches, list(self.state.values())
        return batches, [
            grads if group["differentiable"] else batch.lay_out(grads)
            for batch, group, (_, grads) in zip(batches, groups, found, strict=True)
        ]

    def _step_batch(self, group: Group, batch: Batch, grads: list[Tensor]) -> None:
        """Steps the parameters of one group; a subclass may step many of them at once."""
        self._step_each(group, batch.params, batch.states, grads)

    def _step_each(
        self, group: Group, params: list[Tensor], states: list[State], grads: list[Tensor]
    ) -> None:
        """Steps parameters one at a time, as :meth:`step_param` says."""
        try:
            for param, state, grad in zip(params, states, grads, strict=True):
                slope = as_real(grad)
                slope = -slope if group["maximize"] else slope
                call_in_place(self.step_param, "param", state, group, slope, as_real(param))
        finally:
            if not group["differentiable"]:  # otherwise autograd follows the step
                count_versions(params)

    def step_groups(self, group: Group, batch: Batch) -> list[Any]:
        """Sorts the parameters of a group by backend, if the optimizer has several."""
        return []

    def ready_state(self, group: Group, param: Tensor) -> State:
        """Returns the state of a parameter, begun by :meth:`init_state` if it has none."""
        state: State | None = self.state.get(param)
        if not state:
            state = {}
            call_in_place(self.init_state, "state", state, group, as_real(param).detach())
            self.state[param] = state
        return state

    def _check_state(self, group: Group, param: Tensor, state: Mapping[str, Any]) -> None:
        """Raises a ``ValueError`` if a state that is not empty cannot be this parameter's."""

    # ------------------------------------------------------------------ groups and checkpoints
    def add_param_group(self, param_group: Group) -> None:
        """Adds a group of parameters.

        Args:
            param_group: ``params``, and options that differ from the defaults. It is copied.

        Raises:
            ValueError: if an option is out of its range, or a ``weight_decay`` is of another class
                than the optimizer's.
        """
        group = flattened(param_group, type(self.weight_decay))
        self._complete(group, self.defaults)
        if isinstance(group["lr"], Tensor):
            group["lr"] = group["lr"].reshape(())
        super().add_param_group(group)
        self._plan = None

    def _complete(self, group: Group, defaults: Mapping[str, Any]) -> None:
        """Adds missing options to a group, and checks all."""
        for name, default in defaults.items():
            # A scheduler writes into a rate that is a tensor, so each group has its own tensor.
            group.setdefault(name, default.clone() if isinstance(default, Tensor) else default)
        self.validate(group)
        group["betas"] = tuple(group["betas"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a copy of a state; checkpoints of torch's Adam and AdamW load too.

        Those of torch before 2.7 do not have ``decoupled_weight_decay``: the option here applies.

        Raises:
            ValueError: if its groups are of other sizes, an option is out of its range, or a state
                is not of its parameter's shape; then nothing has changed.
        """
        check_mapping("state_dict", state_dict)
        handle = self.register_load_state_dict_pre_hook(
            lambda optimizer, given: seal(optimizer, given, self._check_state)
        )
        made = [group.get("amsgrad", False) for group in self.param_groups]
        try:
            super().load_state_dict(state_dict)
        finally:
            handle.remove()
        warn_of_no_maximum(type(self).__name__, made, self.param_groups)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.weight_decay = state.get("weight_decay") or self.weight_decay
        defaults = state.get("defaults") or self.defaults
        for group in state["param_groups"]:
            if "decoupled_weight_decay" in group:  # torch's name
                group["weight_decouple"] = group.pop("decoupled_weight_decay")
            self._complete(group, defaults)
        unseal(state["state"])
        super().__setstate__(state)
        self._plan = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "weight_decay": self.weight_decay}


_grad = attrgetter("grad")


def _with_gradients(params: list[Tensor]) -> Found:
    """Returns the parameters that have a gradient, and their gradients."""
    grads = [grad for grad in map(_grad, params) if grad is not None]
    if len(grads) < len(params):
        params = [param for param in params if param.grad is not None]
    return params, grads


def _only_looks(groups: Sequence[Group], grads: Sequence[Sequence[Tensor]]) -> bool:
    """Returns whether all rates are zero, on the host, and all gradients."""
    # So torch's `get_optimizer_state_dict` steps an optimizer that has no state yet, to save it.
    rates = (group["lr"] for group in groups)
    if any(is_remote(lr) or lr != 0 for lr in rates):
        return False
    return not any(any_process(local(g).any(), g) for own in grads for g in own)


class Batch:
    """The parameters of one group that have a gradient, with their states."""

    def __init__(
        self, optimizer: GenericAdaptiveOptimizer, group: Group, params: list[Tensor]
    ) -> None:
        self.params = [*params]
        self._options = _options(optimizer, group, self.params)
        self.states = [optimizer.ready_state(group, param) for param in self.params]
        self._lie = [param.stride() for param in self.params]
        self._strides: list[tuple[int, ...]] | None = None
        self.step_groups = optimizer.step_groups(group, self)

    def fits(self, optimizer: GenericAdaptiveOptimizer, group: Group, found: Found) -> bool:
        """Returns whether parameters with gradients, their layout, and options are unchanged."""
        params, grads = found
        return (
            _same(self.params, params)
            and self._options == _options(optimizer, group, self.params)
            and all(members.stands() for members in self.step_groups)
            and self._laid_out(grads)
        )

    def of(self, members: Any, grads: list[Tensor]) -> list[Tensor]:
        """Returns the gradients of a step group."""
        return grads if len(self.step_groups) == 1 else [grads[i] for i in members.index]

    def _laid_out(self, grads: list[Tensor]) -> bool:
        """Finds the memory of step groups; returns whether gradients lie as their parameters."""
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
        if not self._laid_out(grads):
            pairs = zip(grads, self.params, strict=True)
            grads = [g if same_layout(g, p) else torch.empty_like(p).copy_(g) for g, p in pairs]
            self._laid_out(grads)
        return grads


def _same(known: Sequence[object], found: Any) -> bool:
    return len(known) == len(found) and all(map(is_, known, found))


def _options(
    optimizer: GenericAdaptiveOptimizer, group: Group, params: list[Tensor]
) -> tuple[object, ...]:
    return (
        *((first.dtype, first.device) for first in params[:1]),
        isinstance(group["lr"], Tensor),
        type(optimizer.weight_decay),
        *map(group.get, PLANNED),
    )


def _check_gradients(
    optimizer: GenericAdaptiveOptimizer, params: list[Tensor], grads: list[Tensor]
) -> None:
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
