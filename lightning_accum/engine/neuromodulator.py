"""Neuromodulators: what a rule's call releases decays, and multiplies terms while it lasts."""

from dataclasses import dataclass
from typing import final

from lightning_accum._checks import check_finite
from lightning_accum.functional.traces import decay_factor


@final
@dataclass(frozen=True)
class Neuromodulator:
    r"""A substance, such as dopamine, whose level multiplies the changes of a rule.

    .. math::
        m(t) = b + g\, d(t), \qquad d(t) = e^{-\Delta t / \tau}\, d(t - \Delta t) + q(t)

    with the level :math:`m` and the release :math:`q`. It is a hyperparameter of a rule, and the
    argument of its name in the rule's call is released: a tensor ``[T, B]`` step by step; a number,
    or ``[B]``, once, in the last step of the window, because the call comes after all steps. A call
    without the argument releases nothing.

    :class:`MSTDP` and :class:`MSTDPET` take one as ``reward``. Any other rule lists those that it
    has among its hyperparameters; its terms are multiplied by one in :func:`reward_modulated`, or
    read its level by :meth:`~lightning_accum.engine.Window.modulator`.

    Each sample has its own level, which passes from window to window as traces do: until
    ``trainer.clear()``, unless the rule has ``carry=False``. It is saved with the rule.

    Args:
        tc: time constant :math:`\tau` of the decay, in ms.
        baseline: the level :math:`b` when nothing was released. A negative one stands for what is
            expected: with less, changes have the opposite sign.
        gain: what each unit that is released adds to the level, :math:`g`.

    Raises:
        ValueError: if ``tc`` is not positive, or a number is not finite.

    Example:
        >>> import torch
        >>> from lightning_accum import Neuromodulator, Rule, RuleTrainer, Serial, Term
        >>> from lightning_accum.rules import reward_modulated
        >>> class Dopamine(Rule):
        ...     dopamine: Neuromodulator = Neuromodulator(tc=200.0)
        ...     def terms(self, window):
        ...         terms = [Term(0.1, window.post, window.pre)]
        ...         return reward_modulated(window, terms, modulator="dopamine")
        >>> layer = Serial(torch.nn.Linear(1, 1, bias=False), torch.nn.Identity())
        >>> _ = torch.nn.init.ones_(layer.connection.weight)
        >>> trainer = RuleTrainer(Dopamine())
        >>> unit = trainer.register_cell("enc", layer.cell)
        >>> for released in (1.0, 0.0):  # a spike on both sides in each of two steps
        ...     _ = layer(torch.ones(1, 1))
        ...     trainer(dopamine=released)
        >>> unit.cell.updater.weight.pos  # 0.1 (1 + exp(-1 / 200))
        tensor([[0.1995]])

    Source:
        Izhikevich 2007, "Solving the distal reward problem through linkage of STDP and dopamine
        signaling", doi:10.1093/cercor/bhl152.
    """

    tc: float
    baseline: float = 0.0
    gain: float = 1.0

    def __post_init__(self) -> None:
        check_finite(tc=self.tc, baseline=self.baseline, gain=self.gain)
        decay_factor(self.tc)  # checks that it is positive


def modulators_of(h: object) -> dict[str, Neuromodulator]:
    """Returns the neuromodulators among hyperparameters, by name."""
    return {name: each for name, each in vars(h).items() if isinstance(each, Neuromodulator)}
