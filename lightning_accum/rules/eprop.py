"""Eligibility propagation: a recurrent spiking network learns from an error, forward in time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from torch import nn
from typing_extensions import Self

from lightning_accum._checks import check_finite, check_type
from lightning_accum.cells.independent_trainer import field
from lightning_accum.engine import Change, Window
from lightning_accum.engine.recording import Given, Recording
from lightning_accum.functional.traces import decay_factor
from lightning_accum.rules._eprop_windows import FoldConstants, FoldedWindow, fold_window
from lightning_accum.rules.feedback import DirectFeedback, Feedback, learning_signal
from lightning_accum.rules.potential_rule import PotentialRule
from lightning_accum.sparse.kernel_library import Scratch


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
        **options: those of :class:`Rule`.

    Raises:
        TypeError: if the feedback or the surrogate is of another type.
        ValueError: if a hyperparameter is not that of the neuron, or the neuron keeps no state.

    Example:
        >>> import torch
        >>> from lightning_accum import EProp, Serial
        >>> from lightning_accum.rules import SymmetricFeedback
        >>> from lightning_accum.nn import SurrogateLIF
        >>> layer = Serial(torch.nn.Linear(3, 4), SurrogateLIF(4, time_dim=0))
        >>> readout = torch.nn.Linear(4, 2)
        >>> rule = EProp(lr=0.01, feedback=SymmetricFeedback(readout), time_dim=0)
        >>> unit = rule.register_cell("hidden", layer.cell)
        >>> y = readout(layer(torch.ones(10, 1, 3)))
        >>> rule(error=y.softmax(-1) - torch.tensor([1.0, 0.0]))
        >>> unit.cell.updater.weight.neg.shape
        torch.Size([4, 3])

    Source:
        Bellec et al. 2020, "A solution to the learning dilemma for recurrent networks of spiking
        neurons", doi:10.1038/s41467-020-17236-y.
    """

    lr: float
    feedback: Feedback = field(default_factory=DirectFeedback, hyperparameter=False)
    tc_mem: float = field(default=None, of_neuron="tc_mem", kw_only=True)
    tc_readout: float | None = None
    beta: float | None = field(default=None, of_neuron="beta")
    tc_adaptation: float = field(default=None, of_neuron="tc_adaptation")
    regularization: float = 0.0
    target_rate: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self._scratch = Scratch()
        # The input and the recurrent connection of a layer have the same learning signals and
        # pseudo-derivatives, which are folded once in a call.
        self._folds: dict[tuple[object, ...], FoldedWindow] = {}

    def required(self, h: Self) -> tuple[str, ...]:
        """Returns names of hyperparameters that a registered cell should have."""
        return (*super().required(h), *(("tc_adaptation",) if h.beta else ()))

    def check(self, h: Self) -> None:
        """Raises an error if hyperparameters, or the feedback, make no sense."""
        super().check(h)
        should = "a Feedback, such as `SymmetricFeedback(readout)`, or None"
        check_type(isinstance(self.feedback, Feedback), "feedback", self.feedback, should)
        beta = 0.0 if h.beta is None else h.beta
        check_finite(target_rate=h.target_rate, regularization=h.regularization, beta=beta)

    def held_rate(self, name: str) -> float | None:
        """Returns the target rate, if the rule regularizes the rate."""
        h = self.state_of(name).hyperparameters
        return h.target_rate if h.regularization else None

    def _factors(self, inputs: Given, recording: Recording, h: Self) -> Mapping[str, Any]:
        """Returns, by name, the error, the pseudo-derivative and the weights of the feedback."""
        found, weight = super()._factors(inputs, recording, h), self.feedback.matrix()
        return found if weight is None else {**found, "feedback": weight}

    def followed(self) -> Iterator[nn.Parameter]:
        """Yields the weights of a readout whose updates the feedback takes."""
        return self.feedback.followed()

    def prepare(self, recording: Recording, h: Self) -> FoldedWindow:
        """Folds the learning signals and pseudo-derivatives of a window, backwards in time."""
        signal = learning_signal(recording, type(self).__name__, self.feedback)
        constants = FoldConstants(
            kappa=0.0 if h.tc_readout is None else decay_factor(h.tc_readout, h.dt),
            beta=float(h.beta or 0.0),
            rho=decay_factor(h.tc_adaptation, h.dt) if h.beta else 0.0,
            regularization=h.regularization,
            target=h.target_rate * h.dt / 1000.0,
        )
        read = map(recording.activity, ("post", *self.states(h)))
        same = (
            *((each.data_ptr(), each.shape) for each in read),
            h.surrogate,
            h.threshold,
            constants,
        )
        if same not in self._folds:
            self._folds[same] = fold_window(recording, h, constants, signal, self._scratch.empty)
        return self._folds[same]

    def terms(self, window: Window, h: Self) -> Sequence[Change]:
        """Returns the folded signal, times the low-pass of the input."""
        folded: FoldedWindow = window.prepared
        return folded.terms(window, window.pre.trace(h.tc_mem), h.lr)

    def bind_model(self, model: nn.Module) -> None:
        """Looks up the readout of the feedback."""
        self.feedback.bind_model(model)

    def forward(self, *, carry: bool | None = None, **inputs: Any) -> None:
        """Evaluates the window as any rule does; learned feedback then follows its readout."""
        with self._scratch:
            try:
                super().forward(carry=carry, **inputs)
            finally:
                self._folds = {}
        self.feedback.follow()
