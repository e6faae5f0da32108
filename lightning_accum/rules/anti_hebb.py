"""Hebb's rule, negated, for spikes or rates."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import Self

from lightning_accum.engine.terms import Term
from lightning_accum.engine.window import Window
from lightning_accum.rules.rate import RateRule


class AntiHebb(RateRule):
    r"""Depresses connections between neurons that are active together: Hebb's rule, negated.

    .. math:: \Delta w = -\eta \sum_t y(t) \otimes x(t)

    On lateral connections it decorrelates neurons. The change belongs to the depressing part, so
    that a lower bound acts on it.

    Args:
        lr: rate.
        **options: those of :class:`Rule`.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import AntiHebb, Serial
        >>> layer = Serial(nn.Linear(2, 1, bias=False), nn.ReLU())
        >>> _ = nn.init.ones_(layer.connection.weight)
        >>> rule = AntiHebb(lr=0.1)
        >>> unit = rule.register_cell("lateral", layer.cell)
        >>> _ = layer(torch.tensor([[1.0, 3.0]]))
        >>> rule()
        >>> unit.cell.updater.weight.neg
        tensor([[0.4000, 1.2000]])

    Source:
        Földiák 1990, "Forming sparse representations by local anti-Hebbian learning",
        doi:10.1007/BF02331346.
    """

    _fixed_terms = True

    def terms(self, window: Window, h: Self) -> Sequence[Term]:
        """Returns the negated product of both sides."""
        return (Term(-h.lr, window.post, window.pre),)
