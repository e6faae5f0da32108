"""Competitive learning: the weights of winning neurons approach the input."""

import warnings

import torch

from lightning_accum._checks import check_value
from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule


class WTAHebb(Rule):
    r"""Moves the winners' weights towards the input: competitive learning.

    .. math::
        \Delta w_i = \eta \sum_t y_i(t) \left( x(t) - w_i \right), \qquad
        y_i(t) = \left[\, u_i(t) \text{ is among the } k \text{ largest} \,\right]

    with :math:`u` the neurons' output, usually the connection's own (``nn.Identity()`` as the
    neuron). Each neuron converges to the mean of the inputs that it wins, as in online k-means.
    The channels of a convolution compete at every place.

    Args:
        lr: rate, at most one.
        winners: number of winners :math:`k`, less than that of neurons, or all win; also if no
            neuron is driven. Among equals the first wins if ``winners`` is 1, otherwise any of
            them.

    Raises:
        ValueError: if there are fewer neurons than winners.

    Example:
        >>> import torch
        >>> from lightning_accum import WTAHebb, change_of
        >>> x, w = torch.tensor([[[0.6, 0.8]]]), torch.eye(2)
        >>> w + change_of(WTAHebb(lr=0.5), x, x @ w.T, w)[0]  # the second neuron wins
        tensor([[1.0000, 0.0000],
                [0.3000, 0.9000]])

    Source:
        Rumelhart & Zipser 1985, "Feature discovery by competitive learning",
        doi:10.1207/s15516709cog0901_5.
    """

    spikes = False

    lr: float
    winners: int = 1

    def check(self) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense."""
        fits = isinstance(self.winners, int) and self.winners > 0
        check_value(fits, "winners", self.winners, "a positive number of neurons")

    def terms(self, window: Window) -> tuple[Term, Term]:
        """Returns the input of the winners, less their weights."""
        post, dim = window.post.values(), window.post.unit_dim
        should = f"at most the number of neurons, {post.shape[dim]}"
        check_value(post.shape[dim] >= self.winners, "winners", self.winners, should)
        if post.shape[dim] == self.winners:
            warnings.warn(
                "Argument `winners` should be less than the number of neurons, for any to lose."
                f" Found `winners = {self.winners}` of {post.shape[dim]} neurons, so that all learn"
                " the same: pass fewer winners, or take a rule without competition, such as `Oja`.",
                UserWarning,
                stacklevel=2,
            )
        one = self.winners == 1
        best = post.argmax(dim, keepdim=True) if one else post.topk(self.winners, dim).indices
        highest = post.gather(dim, best)  # NaN, if any output is NaN, stays visible in the change
        won = torch.zeros_like(post).scatter(dim, best, highest.masked_fill(~highest.isnan(), 1.0))
        return Term(self.lr, won, window.pre), window.decay(-self.lr, won)
