"""The delta rule: a readout learns from its error."""

from torch import Tensor

from lightning_accum.engine import Term, Window
from lightning_accum.engine.feedback import learning_signal
from lightning_accum.engine.rule_inputs import Recording
from lightning_accum.rules.third_factor import ThirdFactorRule, of_neuron


class DeltaRule(ThirdFactorRule):
    r"""Changes a readout by its error, times the low-pass of its input.

    .. math:: \Delta w_{kj} = -\eta \sum_t \delta_k(t)\, \bar z_j(t), \qquad
              \bar z_j(t) = \kappa\, \bar z_j(t - \Delta t) + z_j(t), \quad
              \kappa = e^{-\Delta t / \tau}

    For a leaky readout :math:`y(t) = \kappa\, y(t - \Delta t) + W z(t)` and the gradient of a loss
    :math:`\delta_k(t) = \partial E / \partial y_k(t)`, this is gradient descent,
    :math:`\Delta W = -\eta\, \partial E / \partial W`.

    Pass the error to the trainer, ``trainer(error=error)``. A callback passes the entries of what
    ``training_step`` returns that its ``input_keys`` name. The error has shape ``[T, B, classes]``,
    or ``[B, classes]`` if it is the same in all steps. It is that of each sample, not divided by
    the size of the batch.

    Args:
        lr: rate :math:`\eta`.
        tc_readout: time constant :math:`\tau` of the readout, in ms. When ``None``, ``tc_mem`` of
            the neuron; if the neuron has none, the input itself counts.
        graded_input: whether the input of the connection is real-valued instead of spikes.

    Raises:
        ValueError: if the time constant is not that of the readout.

    Example:
        >>> import torch
        >>> from lightning_accum import DeltaRule, change_of
        >>> x, y, w = torch.tensor([[[1.0, 0.5]]]), torch.zeros(1, 1, 1), torch.zeros(1, 2)
        >>> change_of(DeltaRule(lr=0.1), x, y, w, error=torch.tensor([[2.0]]))
        tensor([[[-0.2000, -0.1000]]])

    Source:
        Bellec et al. 2020, doi:10.1038/s41467-020-17236-y, the rule of the output weights.
    """

    lr: float
    tc_readout: float | None = of_neuron("tc_mem")

    spikes = ("pre",)

    def prepare(self, recording: Recording) -> Tensor:
        """Returns the error of every step and sample, ``[T, B, ...]``."""
        return learning_signal(recording, type(self).__name__).of(slice(None))

    def terms(self, window: Window) -> tuple[Term, ...]:
        """Returns the error, times the low-pass of the input."""
        pre = window.pre if self.tc_readout is None else window.pre.trace(self.tc_readout)
        return (Term(-self.lr, window.prepared[window.steps], pre),)
