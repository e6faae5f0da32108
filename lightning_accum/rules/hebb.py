"""Hebb's rule, and the same negated, for spikes or rates."""

from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule


class Hebb(Rule):
    r"""Potentiates connections between neurons that are active together: Hebb's plain product.

    .. math:: \Delta w = \eta \sum_t y(t) \otimes x(t)

    for activity of spikes or real values. Weights grow without limit: add a constraint
    (:class:`~lightning_accum.Normalize`, :class:`~lightning_accum.Clamp`) or a bound. If activity
    has negative values, both parts of the change may have them too.

    Args:
        lr: rate.

    Example:
        >>> import torch
        >>> from lightning_accum import Hebb, change_of
        >>> pre, post = torch.tensor([[[1.0, 3.0]]]), torch.tensor([[[4.0]]])
        >>> change_of(Hebb(lr=0.1), pre, post, torch.zeros(1, 2))
        tensor([[[0.4000, 1.2000]]])

    Source:
        Hebb 1949, "The Organization of Behavior"; Gerstner & Kistler 2002, "Mathematical
        formulations of Hebbian learning", doi:10.1007/s00422-002-0353-y, eq. 2.
    """

    spikes = False

    lr: float

    def terms(self, window: Window) -> tuple[Term, ...]:
        """Returns the product of both sides."""
        return (Term(self.lr, window.post, window.pre),)


class AntiHebb(Rule):
    r"""Depresses connections between neurons that are active together: Hebb's rule, negated.

    .. math:: \Delta w = -\eta \sum_t y(t) \otimes x(t)

    On lateral connections it decorrelates neurons. The change belongs to the depressing part, so
    that a lower bound acts on it.

    The arguments, and how it is used, are those of :class:`Hebb`.

    Source:
        Földiák 1990, "Forming sparse representations by local anti-Hebbian learning",
        doi:10.1007/BF02331346.
    """

    spikes = False

    lr: float

    def terms(self, window: Window) -> tuple[Term, ...]:
        """Returns the negated product of both sides."""
        return (Term(-self.lr, window.post, window.pre),)
