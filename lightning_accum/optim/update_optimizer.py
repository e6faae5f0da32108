"""The optimizer that applies accumulated updates, and their export as gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_factor, check_mapping, check_type, is_number
from lightning_accum._compat.torch_internals import version
from lightning_accum.distributed.shards import is_sharded
from lightning_accum.optim._states import checked_parts
from lightning_accum.updates import Updater
from lightning_accum.updates.atomic_changes import call_uninterrupted

Step = Callable[["UpdateOptimizer"], None]  # called with the optimizer in each of its steps


class UpdateOptimizer(torch.optim.Optimizer):
    r"""Applies the pending updates of updaters, as an optimizer for schedulers and loggers.

    .. math:: w \leftarrow w + \eta\, \Delta w

    with :math:`\Delta w` the bounded change of each parameter and :math:`\eta` its group's ``lr``.
    The constraints of the updaters run afterwards. Gradients are ignored, and updates of parameters
    in no group stay pending. A :class:`~lightning_accum.callbacks.CellTrainerCallback` attaches the
    updaters itself.

    Args:
        params: parameters or parameter groups, as for any optimizer.
        lr: factor of the change, non-negative.
        updaters: the updaters to apply.

    Raises:
        ValueError: if ``lr`` is negative.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import attach_updater
        >>> fc = nn.Linear(1, 1)
        >>> _ = nn.init.zeros_(fc.weight)
        >>> updater = attach_updater(fc, "weight")
        >>> optimizer = UpdateOptimizer(fc.parameters(), lr=0.5, updaters=[updater])
        >>> updater.weight = torch.ones(1, 1)
        >>> optimizer.step()
        >>> fc.weight.item()
        0.5
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1.0,
        updaters: Iterable[Updater] = (),
    ) -> None:
        check_factor(lr=lr)
        # Weight decay is always 0, for callbacks that log it for every optimizer.
        super().__init__(params, {"lr": lr, "weight_decay": 0.0})
        self._begin()
        self.attach(updaters)

    def _begin(self) -> None:
        self._updaters: list[Updater] = []
        # The parameter last seen under each updater's name.
        self._found: dict[tuple[int, str], Tensor] = {}
        self._prepare: list[Step] = []
        self._finish: list[Step] = []

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters.

        Raises:
            ValueError: if its ``lr`` is negative, or its ``weight_decay`` is not 0.
        """
        check_options({**self.defaults, **param_group})
        super().add_param_group(param_group)
        self._begin_states()

    def _begin_states(self) -> None:
        """Gives parameters a state that is never read."""
        # To save an optimizer without states, torch's `get_optimizer_state_dict` has it step at a
        # rate of zero, which would clear the pending updates, and cannot load the checkpoint.
        for group in self.param_groups:
            for param in group["params"]:
                self.state.setdefault(param, {"unused": torch.zeros(1, device=param.device)})

    @property
    def ids(self) -> set[int]:
        """The ``id`` of every parameter in a group."""
        self._follow()
        return {id(param) for group in self.param_groups for param in group["params"]}

    @property
    def idle(self) -> set[int]:
        """The ``id`` of every parameter of its updaters of which nothing is pending."""
        targets = [] if self._prepare else self._follow()  # these accumulate in the step itself
        every = [
            (id(p), getattr(u, name).empty) for u, params in targets for name, p in params.items()
        ]
        return {key for key, _ in every} - {key for key, empty in every if not empty}

    def _follow(self) -> list[tuple[Updater, dict[str, Tensor]]]:
        """Returns the updaters and their parameters, which it follows into the same groups."""
        # An assignment, or `load_state_dict(assign=True)`, replaces a parameter under its name.
        every = [(u, u.changes) for u in self._updaters]
        targets = [(u, {name: c.target(name) for name in c.pending}) for u, c in every]
        for updater, params in targets:
            for name, now in params.items():
                place = id(updater), name
                then = self._found.get(place)
                if then is now or (then is not None and is_sharded(then) != is_sharded(now)):
                    continue  # FSDP2 replaces a parameter while it is unsharded
                self._found[place] = now
                if then is not None:
                    self._replace(then, now)
        return targets

    def _replace(self, then: Tensor, now: Tensor) -> None:
        """Replaces ``then`` by ``now`` in its group, or adds ``now`` if it has another name too."""
        shared = any(param is then for param in self._found.values())
        for group in self.param_groups:
            known = [id(param) for param in group["params"]]
            if id(then) in known and id(now) not in known:
                at = known.index(id(then))
                group["params"][at : at + (not shared)] = [now]
        if not shared and then in self.state:
            self.state[now] = self.state.pop(then)
        self._begin_states()

    def attach(
        self, updaters: Iterable[Updater], prepare: Step | None = None, finish: Step | None = None
    ) -> None:
        """Has :meth:`step` apply these updaters too.

        Args:
            updaters: the updaters.
            prepare: is called with this optimizer before the updates are applied, to accumulate
                outstanding changes.
            finish: is called with this optimizer after all updates are applied.
        """
        for updater in checked_updaters(updaters):
            if all(updater is not known for known in self._updaters):
                self._updaters.append(updater)
        self._follow()
        if prepare is not None:
            self._prepare.append(prepare)
        if finish is not None:
            self._finish.append(finish)

    def detach(
        self, updaters: Iterable[Updater], prepare: Step | None = None, finish: Step | None = None
    ) -> None:
        """Removes updaters and functions that :meth:`attach` added."""
        gone = {id(updater) for updater in updaters}
        self._updaters = [u for u in self._updaters if id(u) not in gone]
        self._found = {place: p for place, p in self._found.items() if place[0] not in gone}
        self._prepare = [fn for fn in self._prepare if fn != prepare]
        self._finish = [fn for fn in self._finish if fn != finish]

    def check_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Raises an error if :meth:`load_state_dict` would; loads nothing."""
        check_mapping("state_dict", state_dict)
        for group in checked_parts(self, state_dict)[1]:
            check_options({"lr": None, **group})

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a copy of a state.

        Raises:
            ValueError: if its groups are of other sizes, or an option is out of its range; then
                nothing has changed.
        """
        self.check_state_dict(state_dict)
        super().load_state_dict({**state_dict, "state": {}})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._begin_states()
        if not hasattr(self, "_updaters"):  # A copy has other parameters, and no updaters yet.
            self._begin()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Applies the pending updates, after a call of ``closure``, whose result it returns."""
        result = None
        if closure is not None:
            with torch.enable_grad():
                result = closure()
        self.apply_pending()
        return result

    def apply_pending(self) -> None:
        """Applies the pending updates, as :meth:`step` does, without the hooks of an optimizer."""
        for prepare in self._prepare:
            prepare(self)
        targets = self._follow()
        lr = {id(p): group["lr"] for group in self.param_groups for p in group["params"]}
        scaled = []
        for updater, params in targets:
            scales = {n: float(lr[id(param)]) for n, param in params.items() if id(param) in lr}
            if scales:
                scaled.append((updater, scales))
        if not scaled:
            updaters = f"{len(targets)} updaters, none of them of a parameter in its groups"
            raise RuntimeError(
                "An UpdateOptimizer should have updaters of its parameters to apply. Found"
                f" {updaters if targets else 'none'}, so that its steps change nothing: give"
                " it the parameters that cells train, such as the `weight` of each connection,"
                " whose updaters a CellTrainerCallback attaches when a fit begins, or pass"
                " `updaters=[attach_updater(module)]`; an optimizer that replaces another during"
                " the fit has none."
            )
        ready = [updater.prepare(*scales, scale=scales) for updater, scales in scaled]
        for apply in ready:  # Every updater is prepared, so either all are applied or none.
            apply()
        for finish in self._finish:
            finish(self)


def check_options(group: Mapping[str, Any]) -> None:
    """Raises an error if the options of a group are not those of an :class:`UpdateOptimizer`."""
    check_factor(lr=group["lr"])
    decay = group.get("weight_decay", 0.0)
    if not is_number(decay) or decay:
        raise ValueError(
            "An UpdateOptimizer should have no `weight_decay`, which it would not apply. Found"
            f" `weight_decay = {decay}` in a parameter group: let the rule's depression or a"
            " constraint such as `Normalize` limit the weights."
        )


def checked_updaters(updaters: Iterable[Updater]) -> list[Updater]:
    """Returns updaters as a list."""
    found: list[Any] = list(updaters) if isinstance(updaters, Iterable) else [updaters]
    for updater in found:
        how = "attach one with `attach_updater(module)`"
        check_type(isinstance(updater, Updater), "updaters", updater, "a list of Updaters", how)
    return found


# An exported gradient has, as an attribute, the versions of itself and of its parameter, and how
# often in a row it was added to an export with which the parameter had been stepped already.
_EXPORTED = "_lightning_accum_exported"


def updates_as_gradients(*updaters: Updater) -> None:
    r"""Turns the pending updates of updaters into gradients, for any optimizer of the parameters.

    .. math:: g \leftarrow g - \Delta w

    with :math:`\Delta w` the bounded change of each parameter: a descent along :math:`-\Delta w`
    is a step along the change. The updates are then no longer pending. They are added to existing
    gradients, such as those of a loss. The optimizer decides on the size of the step, so bounds
    that depend on the weight shape only its direction, and the caller has to apply the constraints
    of the updaters after the step. Empty the gradients after each step, with ``zero_grad()``:
    updates that stay there are applied again, and a warning says so, as it does of updates that
    are emptied before the step.

    Raises:
        NonFiniteUpdateError: if a change holds NaN or Inf and its updater's policy is ``"raise"``;
            then no gradient has changed.

    Example:
        >>> import torch
        >>> from lightning_accum import attach_updater
        >>> from lightning_accum.optim import AdaBelief
        >>> fc = torch.nn.Linear(1, 1, bias=False)
        >>> _ = torch.nn.init.zeros_(fc.weight)
        >>> updater = attach_updater(fc, "weight")
        >>> optimizer = AdaBelief(fc.parameters(), lr=0.5)
        >>> updater.weight = torch.full((1, 1), 0.25)
        >>> updates_as_gradients(updater)
        >>> optimizer.step()
        >>> bool(fc.weight > 0), fc.weight.grad, updater.weight.pos
        (True, tensor([[-0.2500]]), None)
    """
    grads: dict[int, tuple[Tensor, Tensor]] = {}
    consume: list[partial[Any]] = []
    exported: dict[Updater, list[str]] = {}
    for updater in dict.fromkeys(checked_updaters(updaters)):
        found, calls = updater.changes.gradients()
        consume += calls
        exported[updater] = [*found]
        for name, grad in found.items():
            param = updater.changes.target(name)
            known = grads[id(param)][1] if id(param) in grads else param.grad
            grads[id(param)] = param, grad if known is None else known + grad
    stale = {key: _times_stale(param) for key, (param, _) in grads.items()}
    export: list[partial[Any]] = [partial(setattr, p, "grad", grad) for p, grad in grads.values()]
    # An interrupt leaves the updates exported and no longer pending, or neither.
    call_uninterrupted(*export, *consume)
    for key, (param, grad) in grads.items():
        if not (grad.is_inference() or param.is_inference()):  # which have no version
            setattr(grad, _EXPORTED, (version(grad), version(param), stale[key]))
    for updater, changed in exported.items():
        updater.changes.exported(changed)


def times_stale(param: Tensor) -> int:
    """Returns how often in a row changes were added to a gradient that was stepped already."""
    noted = getattr(param.grad, _EXPORTED, None)
    return 0 if noted is None else int(noted[2])


def _times_stale(param: Tensor) -> int:
    """Returns how often in a row a parameter was stepped and its exported gradient stayed."""
    noted = getattr(param.grad, _EXPORTED, None)
    if param.grad is None or noted is None:
        return 0
    of_grad, of_param, times = noted
    stays = version(param.grad) == of_grad and version(param) != of_param
    return times + 1 if stays else 0
