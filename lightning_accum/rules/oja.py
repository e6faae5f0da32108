"""Hebb's rule with a decay that normalizes: the first principal component."""

from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule


class Oja(Rule):
    r"""Adds a decay to Hebb's rule that brings each neuron's weights to unit length.

    .. math:: \Delta w = \eta \sum_t \left( y(t) \otimes x(t) - y(t)^2\, w \right)

    A linear neuron's weights converge to the first principal component of its input, up to its
    sign, if the input has zero mean. Several neurons find the same one; see :class:`Sanger`.

    Args:
        lr: rate; stable below about one over the input's squared length.

    Example:
        >>> import torch
        >>> from lightning_accum import Oja, change_of
        >>> x, w = torch.tensor([[[2.0, 1.0], [-2.0, -1.0]]]), torch.full((1, 2), 0.5)
        >>> for _ in range(200):
        ...     w += change_of(Oja(lr=0.1), x, x @ w.T, w, batch_reduction="mean")
        >>> w  # of length 1, along (2, 1)
        tensor([[0.8944, 0.4472]])

    Source:
        Oja 1982, "A simplified neuron model as a principal component analyzer",
        doi:10.1007/BF00275687, eq. 3.
    """

    spikes = False

    lr: float

    def terms(self, window: Window) -> tuple[Term, Term]:
        """Returns Hebb's product, and a decay by the square of the output."""
        decay = window.decay(-self.lr, window.post.values() ** 2)
        return Term(self.lr, window.post, window.pre), decay
