"""Homeostasis: each neuron's drive changes until the neuron fires at its target rate."""

from lightning_accum._checks import check_value, is_number
from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule


class Homeostasis(Rule):
    r"""Changes a neuron's weights, or its bias, until it fires at a target rate.

    .. math:: \Delta w_i = \eta \sum_t \left( \rho\, \Delta t - s_i(t) \right)

    All weights of a neuron change alike, also those of inputs without activity; ``params=["bias"]``
    changes only the bias. For an inhibitory connection, whose weights lower the drive, choose a
    negative rate. The input may be spikes or values.

    Args:
        lr: rate, the change by one spike.
        target_rate: target rate :math:`\rho`, in Hz.

    Raises:
        ValueError: if the target rate is negative or above one spike a step.

    Example:
        >>> import torch
        >>> from lightning_accum import Homeostasis, change_of
        >>> rule, pre = Homeostasis(lr=0.1, target_rate=250.0), torch.zeros(4, 1, 1)
        >>> post = torch.tensor([1.0, 0.0]).expand(4, 1, 2)  # spikes in every step, and in none
        >>> change_of(rule, pre, post, torch.zeros(2, 1)).flatten()
        tensor([-0.3000,  0.1000])

    Source:
        Turrigiano & Nelson 2004, "Homeostatic plasticity in the developing nervous system",
        doi:10.1038/nrn1327; with a constant drive against each spike as in the rate term of Vogels
        et al. 2011, doi:10.1126/science.1211095.
    """

    lr: float
    target_rate: float

    def check(self) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense."""
        fits = is_number(self.target_rate) and 0 <= self.target_rate < float("inf")
        check_value(fits, "target_rate", self.target_rate, "a firing rate in Hz, at least 0")

    def terms(self, window: Window) -> tuple[Term, Term]:
        """Returns a constant rise, and a fall with each spike."""
        most = 1000.0 / window.dt
        should = f"a rate between 0 and {most:g} Hz, one spike a step"
        check_value(self.target_rate <= most, "target_rate", self.target_rate, should)
        rise = self.lr * self.target_rate * window.dt / 1000.0
        ones = window.post.ones()
        return Term(rise, ones, window.one), Term(-self.lr, window.post, window.one)
