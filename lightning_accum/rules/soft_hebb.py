"""Soft competition: the weights of neurons approach the input by their shares of a softmax."""

from lightning_accum._checks import check_positive
from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule


class SoftHebb(Rule):
    r"""Moves every neuron's weights towards the input by its share of a softmax.

    .. math::
        \Delta w_i = \eta \sum_t y_i(t) \left( x(t) - u_i(t)\, w_i \right), \qquad
        y(t) = \mathrm{softmax}\left(u(t) / \tau\right)

    with :math:`u` the neurons' output before the competition, usually the connection's own
    (``nn.Identity()`` as the neuron). The weights of each neuron converge to unit length. The
    channels of a convolution compete at every place.

    Args:
        lr: rate.
        temperature: :math:`\tau`, how soft the competition is; lower is harder.

    Raises:
        ValueError: if the temperature is not positive.

    Example:
        >>> import torch
        >>> from lightning_accum import SoftHebb, change_of
        >>> x, w = torch.eye(2)[None], torch.tensor([[2.0, 1.0], [1.0, 2.0]])
        >>> rule = SoftHebb(lr=0.1, temperature=0.2)
        >>> for _ in range(100):
        ...     w += change_of(rule, x, x @ w.T, w, batch_reduction="mean")
        >>> w.norm(dim=1)
        tensor([1.0000, 1.0000])

    Source:
        Moraitis et al. 2022, "SoftHebb: Bayesian inference in unsupervised Hebbian soft
        winner-take-all networks", doi:10.1088/2634-4386/aca710, eq. 2.
    """

    spikes = False

    lr: float
    temperature: float = 1.0

    def check(self) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense."""
        check_positive("a positive, finite number", temperature=self.temperature)

    def terms(self, window: Window) -> tuple[Term, Term]:
        """Returns the input by each neuron's share, less what the neuron has learned of it."""
        drive = window.post.values()
        share = (drive / self.temperature).softmax(window.post.unit_dim)
        return Term(self.lr, share, window.pre), window.decay(-self.lr, share * drive)
