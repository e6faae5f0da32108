"""Exports accumulated updates as gradients."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

from torch import Tensor

from lightning_accum._checks import quoted
from lightning_accum._compat import version
from lightning_accum.optim.update import checked_updaters
from lightning_accum.updates import Updater
from lightning_accum.updates.changes import call_uninterrupted

# An exported gradient has, as an attribute, the versions of itself and of its parameter, and how
# often in a row it was added to an export with which the parameter had been stepped already.
_EXPORTED = "_lightning_accum_exported"
_STALE = 3  # times in a row before a warning


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

    Args:
        *updaters: the updaters.

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
    labels: dict[int, str] = {}
    consume: list[partial[Any]] = []
    exported: dict[Updater, list[str]] = {}
    for updater in dict.fromkeys(checked_updaters(updaters)):
        found, calls = updater.gradients()
        consume += calls
        exported[updater] = [*found]
        for name, grad in found.items():
            param = updater.target(name)
            known = grads[id(param)][1] if id(param) in grads else param.grad
            grads[id(param)] = param, grad if known is None else known + grad
            labels[id(param)] = f"{name}` of `{updater.label}"
    stale = {key: _times_stale(param) for key, (param, _) in grads.items()}
    export: list[partial[Any]] = [
        partial(setattr, param, "grad", grad) for param, grad in grads.values()
    ]
    # An interrupt leaves the updates exported and no longer pending, or neither.
    call_uninterrupted(*export, *consume)
    for updater, changed in exported.items():
        updater.end_export(changed)
    for key, (param, grad) in grads.items():
        if not (grad.is_inference() or param.is_inference()):  # which have no version
            setattr(grad, _EXPORTED, (version(grad), version(param), stale[key]))
    if _STALE in stale.values():
        names = quoted((labels[key] for key, times in stale.items() if times == _STALE), ", ")
        warnings.warn(
            f"Gradients should be emptied after each step of their optimizer. Found updates of"
            f" earlier steps in the gradients of {names}, which the optimizer applies again and"
            " again: call its `zero_grad()` after each `step()`.",
            UserWarning,
            stacklevel=2,
        )


def _times_stale(param: Tensor) -> int:
    """Returns how often in a row a parameter was stepped and its exported gradient stayed."""
    noted = getattr(param.grad, _EXPORTED, None)
    if param.grad is None or noted is None:
        return 0
    of_grad, of_param, times = noted
    stays = version(param.grad) == of_grad and version(param) != of_param
    return times + 1 if stays else 0
