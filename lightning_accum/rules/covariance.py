"""The covariance rule: Hebb's product of deviations from the average."""

from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule


class Covariance(Rule):
    r"""Applies Hebb's rule to deviations from the average.

    .. math::
        \Delta w = \eta \sum_t \left(y(t) - \bar y(t)\right) \otimes \left(x(t) - \bar x(t)\right)

    with running averages of each neuron over samples and steps (see
    :meth:`Signal.average <lightning_accum.engine.Signal.average>`). Both parts of the change have
    either sign, which a bound sorts out; constrain the weights, as for Hebb's rule.

    Args:
        lr: rate.
        tc_average: time constant of the averages, in ms.

    Example:
        >>> import torch
        >>> from lightning_accum import Covariance, change_of
        >>> x = torch.tensor([[[1.0], [3.0]]])  # of both neurons, in two samples: 2 on average
        >>> change_of(Covariance(lr=1.0), x, x, torch.ones(1, 1), batch_reduction="mean")
        tensor([[1.]])

    Source:
        Sejnowski 1977, "Storing covariance with nonlinearly interacting neurons",
        doi:10.1007/BF00275079; Dayan & Abbott 2001, "Theoretical Neuroscience", eqs. 8.8-8.9.
    """

    spikes = False

    lr: float
    tc_average: float = 1000.0

    def terms(self, window: Window) -> tuple[Term, ...]:
        """Returns the product of both sides' deviations from their averages."""
        sides = window.post, window.pre
        post, pre = (side.values() - side.average(self.tc_average) for side in sides)
        return (Term(self.lr, post, pre),)
