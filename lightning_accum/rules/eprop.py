"""Eligibility propagation: a recurrent spiking network learns from an error, forward in time."""

from collections.abc import Sequence
from dataclasses import replace

from lightning_accum._checks import check_finite, check_type
from lightning_accum.engine import Change, Window
from lightning_accum.engine.feedback import Feedback, learning_signal
from lightning_accum.engine.rule_inputs import Recording
from lightning_accum.functional.traces import decay_factor
from lightning_accum.rules._eprop_windows import FoldConstants, FoldedWindow
from lightning_accum.rules.feedback import DirectFeedback
from lightning_accum.rules.third_factor import PotentialRule, of_neuron


class EProp(PotentialRule):
    r"""Changes a weight by its eligibility, times the learning signal of its neuron.

    .. math::
        \Delta w_{ji} &= -\eta \sum_t L_j(t) \sum_{t' \le t} \kappa^{t - t'} e_{ji}(t'), \qquad
        L_j = \sum_k B_{kj}\, \delta_k \\
        e_{ji}(t) &= \psi_j(t) \left(\bar x_i(t) - \beta\, \varepsilon^a_{ji}(t)\right) \\
        \varepsilon^a_{ji}(t + 1) &= \psi_j(t)\, \bar x_i(t)
                                   + (\rho - \beta\, \psi_j(t))\, \varepsilon^a_{ji}(t)

    with the low-pass :math:`\bar x` of the presynaptic spikes by the membrane, the
    pseudo-derivative :math:`\psi` of the postsynaptic spike, the strength :math:`\beta` and decay
    :math:`\rho` of an adaptive threshold, the decay :math:`\kappa` of the readout, the error
    :math:`\delta` of the outputs and the feedback weights :math:`B`.

    For one hidden layer that is not recurrent, with the readout's own weights as feedback and a
    reset that subtracts the threshold, this is the gradient by backpropagation through time. In a
    recurrent network it leaves out what one neuron's spikes do to the error by way of others.

    Pass the error as for :class:`DeltaRule`: the gradient of each sample's loss by the outputs,
    such as ``y.softmax(-1) - target``.

    Args:
        lr: rate :math:`\eta`.
        feedback: turns the error of the outputs into the learning signal of each neuron, such as
            :class:`~lightning_accum.rules.SymmetricFeedback`; ``None`` for an error that has an
            entry for each neuron.
        tc_mem: time constant of the membrane, in ms; that of a native neuron when ``None``.
        tc_readout: time constant of the readout, in ms; a readout without memory when ``None``.
        beta: strength :math:`\beta` of the adaptation: by how much a spike raises the threshold.
            That of a native neuron when ``None``, and 0 for a neuron that does not adapt.
        tc_adaptation: time constant of the adaptation, in ms; that of a native neuron when
            ``None``.
        surrogate: the pseudo-derivative :math:`\psi`; when ``None``, that of a native neuron, and
            :class:`~lightning_accum.functional.Triangular` for others.
        regularization: strength :math:`c` of that of firing rates, relative to ``lr``; it adds
            :math:`c\,(\bar z_j - \rho_0)` to the learning signal, not filtered.
        target_rate: firing rate :math:`\rho_0` of the regularization, in Hz.
        membrane: where the potential is found that is compared with the threshold: the path of an
            attribute that the neuron has from its beginning, which is read after each call, or a
            callable that finds it in the neuron's output.
        threshold: where the threshold is found, in the same way; or its value, a number.
        graded_input: whether the input of the connection is real-valued instead of spikes.

    Raises:
        TypeError: if the feedback or the surrogate is of another type.
        ValueError: if a hyperparameter is not that of the neuron, or the neuron keeps no state.

    Example:
        >>> import torch
        >>> from lightning_accum import EProp, Serial, RuleTrainer
        >>> from lightning_accum.rules import SymmetricFeedback
        >>> from lightning_accum.nn import SurrogateLIF
        >>> layer = Serial(torch.nn.Linear(3, 4), SurrogateLIF(4, time_dim=0))
        >>> readout = torch.nn.Linear(4, 2)
        >>> trainer = RuleTrainer(EProp(lr=0.01, feedback=SymmetricFeedback(readout)), time_dim=0)
        >>> unit = trainer.register_cell("hidden", layer.cell)
        >>> y = readout(layer(torch.ones(10, 1, 3)))
        >>> trainer(error=y.softmax(-1) - torch.tensor([1.0, 0.0]))
        >>> unit.cell.updater.weight.neg.shape
        torch.Size([4, 3])

    Source:
        Bellec et al. 2020, "A solution to the learning dilemma for recurrent networks of spiking
        neurons", doi:10.1038/s41467-020-17236-y.
    """

    lr: float
    feedback: Feedback | None = None
    tc_mem: float = of_neuron("tc_mem", needed=True)
    tc_readout: float | None = None
    beta: float | None = of_neuron("beta")
    tc_adaptation: float = of_neuron("tc_adaptation", needed="beta")
    regularization: float = 0.0
    target_rate: float = 10.0

    def check(self) -> None:
        """Raises an error if hyperparameters, or the feedback, make no sense."""
        super().check()
        fits = self.feedback is None or isinstance(self.feedback, Feedback)
        should = "a Feedback, such as `SymmetricFeedback(readout)`, or None"
        check_type(fits, "feedback", self.feedback, should)
        beta = 0.0 if self.beta is None else self.beta
        check_finite(target_rate=self.target_rate, regularization=self.regularization, beta=beta)

    def prepare(self, recording: Recording) -> FoldedWindow:
        """Folds the learning signals and pseudo-derivatives of a window, backwards in time."""
        dt, feedback = recording.dt, self.feedback or DirectFeedback()
        signal = learning_signal(recording, type(self).__name__, feedback)
        signal = replace(signal, error=signal.error.detach())
        constants = FoldConstants(
            kappa=0.0 if self.tc_readout is None else decay_factor(self.tc_readout, dt),
            beta=float(self.beta or 0.0),
            rho=decay_factor(self.tc_adaptation, dt) if self.beta else 0.0,
            regularization=self.regularization,
            target=self.target_rate * dt / 1000.0,
        )
        # The input and the recurrent connection of a layer have the same learning signals and
        # pseudo-derivatives, which are folded once in a call.
        read = (recording.activity(name) for name in ("post", *self.states()))
        same = *((each.data_ptr(), each.shape) for each in read), self.surrogate, self.threshold
        folds, key = recording.inputs.shared, (*same, constants, id(self.feedback))
        if key not in folds:
            folds[key] = FoldedWindow(
                recording, self, constants, signal, recording.inputs.scratch.empty
            )
        folded: FoldedWindow = folds[key]
        return folded

    def terms(self, window: Window) -> Sequence[Change]:
        """Returns the folded signal, times the low-pass of the input."""
        folded: FoldedWindow = window.prepared
        return folded.terms(window, window.pre.trace(self.tc_mem), self.lr)
