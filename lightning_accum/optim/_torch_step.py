"""The step of parameters of one count by the operations and kernels of torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lightning_accum.functional.optimization import Number, bias_correction
from lightning_accum.optim._kernels import Coefficients, compiled_step, fused_step, listed_step
from lightning_accum.optim._step_groups import StepGroup
from lightning_accum.sparse.tensor_lists import CHUNK


def torch_step(
    group: dict[str, Any],
    members: StepGroup,
    grads: list[Tensor],
    k: Coefficients,
    belief: bool,
    rate: Number,
    step: int,
) -> None:
    """Steps parameters of one count by the backend of their step group.

    Args:
        group: the options of the group.
        members: the parameters.
        grads: their gradients.
        k: the coefficients of this step.
        belief: as for :func:`~lightning_accum.optim._kernels.pure_pass`.
        rate: the learning rate of this step.
        step: the count, which includes this step.
    """
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
