"""Accumulated updates in the place of gradients."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.distributed.shards import sharded_like
from lightning_accum.updates import Updater


def updates_as_gradients(*updaters: Updater) -> None:
    r"""Hands what is pending in updaters to whatever optimizer holds their parameters.

    .. math:: g \leftarrow g - \Delta w

    with :math:`\Delta w` the bounded change of each parameter: a descent along :math:`-\Delta w`
    is a step along the change. What was handed over is no longer pending. Gradients that are there
    already, of a loss for instance, are added to. The optimizer decides how far a step goes, so
    that bounds which depend on the weight shape its direction, and constraints of the updater are
    for the caller to apply after the step.

    Args:
        *updaters: the updaters.

    Raises:
        NonFiniteUpdateError: if a change holds NaN or Inf and its updater's policy is ``"raise"``;
            then nothing of that updater was handed over.

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
    for updater in updaters:
        parent = updater.parent
        changes = updater._changes(parent, updater.names)
        params: list[Tensor] = [getattr(parent, name) for name in changes]
        targets = [param.detach() for param in params]
        deltas = updater._finite(changes, targets, [1.0] * len(targets))
        for param, delta in zip(params, deltas, strict=True):
            grad = sharded_like(delta.detach().neg().to(param.dtype), param)
            param.grad = grad if param.grad is None else param.grad + grad
        updater.clear()
