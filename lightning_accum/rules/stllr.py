"""S-TLLR: deep spiking networks learn from a gradient, and from the timing of both sides."""

from dataclasses import field

from lightning_accum.engine import Term, Window
from lightning_accum.engine.rule_inputs import Prepared, Recording
from lightning_accum.functional.surrogate_gradients import FastSigmoid, Surrogate
from lightning_accum.rules.ottt import GradientRule
from lightning_accum.rules.third_factor import potential
from lightning_accum.sparse.eprop import Potential


class Derivative(Prepared):
    """The potentials of a window, which give the pseudo-derivative."""

    def __init__(self, potential: Potential) -> None:
        self.potential, self.factors = potential, {"pseudo-derivative": potential.derivative}


class STLLR(GradientRule):
    r"""Changes a weight by the gradient at each step, times STDP with a pseudo-derivative.

    .. math::
        \Delta w_{ji} &= -\sum_t \frac{\partial E}{\partial z_j(t)}\, e_{ji}(t) \\
        e_{ji}(t) &= \eta_\text{post}\, \psi_j(t)
                     \sum_{t' \le t} \lambda_\text{pre}^{t - t'} x_i(t')
                   + \eta_\text{pre}\, x_i(t) \sum_{t' < t} \lambda_\text{post}^{t - t'} \psi_j(t')

    with the gradient of the loss by the spikes :math:`z` of the same step, spikes :math:`x` before
    the connection, :math:`\lambda = e^{-\Delta t / \tau}`, and a pseudo-derivative :math:`\psi`
    that need not be that of the gradient. The gradient is recorded as by :class:`OTTT`, which says
    how to make the neurons and when to call ``backward()``.

    Args:
        lr_post: rate of the causal product, :math:`\eta\, \alpha_\text{post}` of the paper.
        lr_pre: rate of the other one, :math:`\eta\, \alpha_\text{pre}`: of the opposite sign in the
            paper's networks for images, and of the same sign in those for sounds.
        tc_post: time constant of the trace of :math:`\psi`, in ms.
        tc_pre: time constant of the trace of the input, in ms.
        surrogate: the pseudo-derivative :math:`\psi`, which the paper calls the secondary
            activation.
        membrane, threshold, graded_input: as for :class:`EProp`.
        batch_reduction: as for :class:`OTTT`.

    Raises:
        TypeError: if the surrogate is of another type.
        ValueError: if the neuron keeps no state, or passes gradients through time.

    Example:
        >>> import torch
        >>> from lightning_accum import STLLR, change_of
        >>> rule = STLLR(lr_post=0.01, lr_pre=-0.01, threshold=1.0)
        >>> spikes = torch.ones(3, 1, 1)  # of both neurons, at the threshold
        >>> states = {"membrane": spikes, "gradient": -spikes}  # more spikes lower the loss
        >>> change_of(rule, spikes, spikes, torch.ones(1, 1), states=states)
        tensor([[[0.0378]]])

    Source:
        Apolinario & Roy 2025, "S-TLLR: STDP-inspired temporal local learning rule for spiking
        neural networks", arXiv:2306.15220.
    """

    lr_post: float
    lr_pre: float
    tc_post: float = 1.5
    tc_pre: float = 3.5
    surrogate: Surrogate = field(default=FastSigmoid(100.0), kw_only=True)

    def prepare(self, recording: Recording) -> Derivative:
        """Returns the pseudo-derivative of every step, sample and neuron."""
        return Derivative(potential(recording, self))

    def terms(self, window: Window) -> tuple[Term, Term]:
        """Returns the gradient times the causal product, and times the other one."""
        derivative = window.prepared.potential.part(window.steps).derivative()
        psi = window.state("membrane").derived("derivative", derivative)
        gradient = window.state("gradient").values()
        return (
            Term(-self.lr_post, gradient * derivative, window.pre.trace(self.tc_pre)),
            Term(-self.lr_pre, gradient * psi.trace(self.tc_post).before().values(), window.pre),
        )
