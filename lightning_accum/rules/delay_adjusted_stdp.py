"""STDP on spike-time differences that a learned delay of each synapse shifts."""

from collections.abc import Sequence
from dataclasses import field

from lightning_accum._checks import check_strings
from lightning_accum.engine import Change, Window
from lightning_accum.engine.rule import Rule
from lightning_accum.functional.kernels import ExponentialKernel, Kernel
from lightning_accum.rules.kernel import SpikePairs, check_kernel


class DelayRule(Rule):
    """Base of rules on spike-time differences that delays shift."""

    delay: str = field(default="delay", kw_only=True)

    def check(self) -> None:
        """Raises an error if hyperparameters make no sense."""
        check_strings(delay=self.delay)

    def reads(self) -> tuple[str, ...]:
        """Returns the name of the delays."""
        return (self.delay,)

    def pairs(self, window: Window, kernel: Kernel) -> Sequence[SpikePairs]:
        """Returns the kernel of every nearest pair."""
        return (SpikePairs(kernel, window.post, window.pre, window.tensors[self.delay]),)


class DelayAdjustedSTDP(DelayRule):
    r"""Pair STDP on nearest spikes, where each synapse's delay shifts the time difference.

    .. math::
        \Delta w_{oi} = \sum_{t:\, s_o(t) \lor s_i(t)} \begin{cases}
            \eta_\text{post}\, e^{-t_\Delta / \tau_\text{pre}} & t_\Delta \ge 0 \\
            \eta_\text{pre}\, e^{\,t_\Delta / \tau_\text{post}} & t_\Delta < 0
        \end{cases}
        \qquad t_\Delta = t_o - t_i - d_{oi}

    with :math:`t_o` and :math:`t_i` the times of the latest spikes up to :math:`t`, the step of
    either neuron's spike. A presynaptic spike counts from its arrival.

    With ``params=["delay"]`` the delays learn, by the same equation. The delay rule of the source
    has ``lr_post < 0 < lr_pre``: arrivals move away from the neuron's spike. With
    ``lr_post > 0 > lr_pre`` they move towards it.

    Args:
        lr_post: rate where the presynaptic spike arrives first, and the neuron's comes last.
        lr_pre: rate where the presynaptic spike arrives last.
        tc_post: time constant :math:`\tau_\text{post}`, in ms, if the neuron's spike is first.
        tc_pre: time constant :math:`\tau_\text{pre}`, in ms, if the neuron's spike is last.
        delay: name of the connection's delays, a parameter or buffer ``[out, in]`` in ms.

    Raises:
        TypeError: if a rate is called ``lr_pos`` or ``lr_neg``, as in Inferno.
        ValueError: if the connection has no such delays, or a time constant is not positive.

    Example:
        >>> import torch
        >>> from lightning_accum import DelayAdjustedSTDP, Cell, RuleTrainer
        >>> fc = torch.nn.Linear(1, 1, bias=False)
        >>> fc.delay = torch.nn.Parameter(torch.tensor([[3.0]]), requires_grad=False)
        >>> trainer = RuleTrainer(DelayAdjustedSTDP(lr_post=1.0, lr_pre=-1.0), params=["delay"])
        >>> unit = trainer.register_cell("enc", Cell(fc, torch.nn.Identity()))
        >>> for pre, post in ((1.0, 0.0), (0.0, 1.0)):  # the answer, 1 ms after the spike
        ...     _ = unit.cell.connection(torch.tensor([[pre]]))
        ...     _ = unit.cell.neuron(torch.tensor([[post]]))
        >>> trainer()
        >>> trainer.update()
        >>> fc.delay.data  # it arrived 2 ms after the answer: shorter, by exp(-2 / 20)
        tensor([[2.0952]])

    Source:
        Nadafian & Ganjtabesh 2024, "Bioplausible unsupervised delay learning for extracting
        spatiotemporal features in spiking neural networks", doi:10.1162/neco_a_01674.
    """

    lr_post: float
    lr_pre: float
    tc_post: float = field(default=20.0, kw_only=True)
    tc_pre: float = field(default=20.0, kw_only=True)

    # Names of Inferno, which mean another order of the spikes in one of its rules.
    _of_others = dict.fromkeys(
        ("lr_pos", "lr_neg", "tc_pos", "tc_neg"),
        ", which does not say which spike comes last: `lr_post` and `tc_pre` are those of a"
        " presynaptic spike that arrives before the neuron's, `lr_pre` and `tc_post` of one that"
        " arrives after it. Inferno's `lr_pos` is `lr_post` where weights learn"
        " (DelayAdjustedSTDP), and `lr_pre` where delays learn (DelayAdjustedSTDPD).",
    )

    def terms(self, window: Window) -> Sequence[Change]:
        """Returns one exponential for each order of the two spikes."""
        kernel = ExponentialKernel(self.lr_post, self.lr_pre, self.tc_post, self.tc_pre)
        return self.pairs(window, kernel)


class DelayAdjustedKernelSTDP(DelayRule):
    r"""Any kernel of the nearest spikes' time difference, shifted by each synapse's delay.

    .. math::
        \Delta w_{oi} = \sum_{t:\, s_o(t) \lor s_i(t)} K\left(t_o - t_i - d_{oi}\right)

    as :class:`DelayAdjustedSTDP`, with any kernel in place of two exponentials.

    Args:
        kernel: as for :class:`~lightning_accum.KernelSTDP`.
        delay: as for :class:`DelayAdjustedSTDP`.

    Raises:
        TypeError: if the kernel is not callable.
        ValueError: if the connection has no such delays.

    Example:
        >>> from lightning_accum import DelayAdjustedKernelSTDP, RuleTrainer
        >>> from lightning_accum.functional import GaussianKernel
        >>> rule = DelayAdjustedKernelSTDP(GaussianKernel(0.1, width=5.0))
        >>> trainer = RuleTrainer(rule, params=["weight"])
    """

    kernel: Kernel

    def check(self) -> None:
        """Raises a ``TypeError`` if the kernel is not callable."""
        super().check()
        check_kernel(self.kernel)

    def terms(self, window: Window) -> Sequence[Change]:
        """Returns the kernel of every nearest pair."""
        return self.pairs(window, self.kernel)
