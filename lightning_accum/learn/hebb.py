"""Hebb's rule and its opposite, for activity that is spikes or rates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.learn.engine import Term
from lightning_accum.learn.independent import Hyperparameters
from lightning_accum.learn.rule import Rule, Window


class Hebb(Rule):
    r"""What is active together is connected: the plain product of both sides.

    .. math:: \Delta w = \eta \sum_t y(t) \otimes x(t)

    for activity that is spikes or real values. It grows without end: add a constraint
    (:class:`~lightning_accum.Normalize`, :class:`~lightning_accum.Clamp`) or a bound. A negative
    ``lr`` makes it anti-Hebbian: activity that comes together is driven apart. Where activity takes
    negative values the parts do so too.

    Args:
        lr: rate; negative for the anti-Hebbian rule.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: ``time_dim``, ``params``, ``carry`` and ``path`` of
            :class:`~lightning_accum.learn.rule.Rule`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import Hebb, Serial
        >>> layer = Serial(nn.Linear(2, 1, bias=False), nn.ReLU())
        >>> _ = nn.init.ones_(layer.connection.weight)
        >>> hebb = Hebb(lr=0.1)
        >>> unit = hebb.register_cell("enc", layer.cell)
        >>> _ = layer(torch.tensor([[1.0, 3.0]]))
        >>> hebb()
        >>> unit.cell.updater.weight.pos
        tensor([[0.4000, 1.2000]])

    Source:
        Hebb 1949, "The Organization of Behavior"; Gerstner & Kistler 2002, "Mathematical
        formulations of Hebbian learning", doi:10.1007/s00422-002-0353-y, eq. 2.
    """

    spikes = False

    def __init__(
        self,
        lr: float,
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        super().__init__({"lr": lr}, dt=dt, batch_reduction=batch_reduction, **options)

    def terms(self, window: Window, h: Hyperparameters) -> Sequence[Term]:
        """The product of both sides."""
        return (Term(h.lr, window.post, window.pre),)
