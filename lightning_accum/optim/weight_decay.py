"""How weights decay."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from lightning_accum.functional.moments import Number
from lightning_accum.optim._checks import check, non_negative


@dataclass(frozen=True)
class WeightDecay:
    r"""How the weights of a parameter group decay, for ``weight_decay=`` of any optimizer here.

    .. math::
        \text{decoupled:} \quad & \theta \leftarrow (1 - \eta \lambda) \, \theta
            \quad \text{before the step} \\
        \text{absolute:} \quad & \theta \leftarrow (1 - \lambda) \, \theta
            \quad \text{before the step} \\
        \text{otherwise:} \quad & g \leftarrow g + \lambda \, \theta

    with :math:`\eta` the rate of this very step: a warm-up warms the decay up too.

    Args:
        weight_decay: :math:`\lambda \ge 0`.
        weight_decouple: whether the weights decay apart from their gradient.
        absolute: whether a decoupled decay is independent of the rate.

    Raises:
        ValueError: if ``weight_decay`` is negative.

    Example:
        >>> import torch
        >>> from lightning_accum.optim import Adam
        >>> weight = torch.nn.Parameter(torch.ones(1))
        >>> weight.grad = torch.zeros(1)
        >>> Adam([weight], lr=0.5, weight_decay=WeightDecay(0.1)).step()
        >>> round(weight.item(), 3)
        0.95

    Source:
        Loshchilov & Hutter (2019), arXiv:1711.05101, algorithm 2.
    """

    weight_decay: float = 0.0
    weight_decouple: bool = True
    absolute: bool = False

    def __post_init__(self) -> None:
        check("weight_decay", self.weight_decay, non_negative, "a non-negative number")

    def defaults(self) -> dict[str, Any]:
        """The options of a parameter group that say the same."""
        return asdict(self)


def decay_terms(group: dict[str, Any], rate: Number) -> tuple[Number, float]:
    """What the decay of a group multiplies its weights by, and what of them joins the gradient."""
    decay = group["weight_decay"]
    if not group["weight_decouple"]:
        return 1.0, decay
    return 1.0 - (decay if group["absolute"] else rate * decay), 0.0
