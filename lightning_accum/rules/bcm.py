"""The rule of Bienenstock, Cooper and Munro: a threshold that slides."""

from typing import ClassVar

from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule import Rule


class BCM(Rule):
    r"""Potentiation above a threshold, depression below it, and a threshold that follows activity.

    .. math::
        \Delta w = \eta \sum_t y(t) \left( y(t) - \theta(t) \right) \otimes x(t), \qquad
        \theta(t) = \overline{y^2}(t)

    The threshold is the running average of each neuron's squared output, over samples and steps
    (see :meth:`Signal.average <lightning_accum.engine.Signal.average>`); ``clear`` keeps it, and it
    is saved with the rule. A neuron becomes selective to one of several inputs. Learning is stable
    if the threshold is faster than the weights, with ``tc_threshold`` well below one over the rate.
    Outputs should not be negative, as after ``nn.ReLU()``.

    Args:
        lr: rate.
        tc_threshold: time constant of the threshold, in ms.

    Example:
        >>> import torch
        >>> from lightning_accum import BCM, Serial, RuleTrainer, learn_online
        >>> layer = Serial(torch.nn.Linear(2, 1, bias=False), torch.nn.ReLU())
        >>> _ = layer.connection.weight.data.copy_(torch.tensor([[0.6, 0.5]]))
        >>> bcm = RuleTrainer(BCM(lr=0.2, tc_threshold=5.0))
        >>> unit = bcm.register_cell("v1", layer.cell)
        >>> two = torch.eye(2)  # inputs, as often as each other
        >>> _ = learn_online(bcm, layer, two.expand(1000, 2, 2))
        >>> layer(two).detach().round(decimals=2)
        tensor([[2.],
                [0.]])

    Source:
        Bienenstock, Cooper & Munro 1982, doi:10.1523/JNEUROSCI.02-01-00032.1982; the threshold as
        the average of the square: Intrator & Cooper 1992, doi:10.1016/S0893-6080(05)80003-6.
    """

    spikes = False
    rectified: ClassVar[bool] = True

    lr: float
    tc_threshold: float = 100.0

    def terms(self, window: Window) -> tuple[Term, Term]:
        """Returns potentiation above the threshold, and depression below it."""
        post = window.post.values()
        phi = post * (post - window.post.average(self.tc_threshold, power=2))
        above, below = phi.clamp(min=0), phi.neg().clamp(min=0)
        return Term(self.lr, above, window.pre), Term(-self.lr, below, window.pre)
