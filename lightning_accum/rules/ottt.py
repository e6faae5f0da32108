"""Online training through time: deep spiking networks learn from a gradient without memory."""

from collections.abc import Mapping, Sequence
from dataclasses import field

from typing_extensions import Self

from lightning_accum.cells.cell import Cell
from lightning_accum.engine import Change, Window
from lightning_accum.engine.feedback import LearningSignal
from lightning_accum.engine.rule_inputs import Recording
from lightning_accum.functional.dtypes import widened
from lightning_accum.functional.traces import decay_factor
from lightning_accum.observe import GradientMonitor
from lightning_accum.observe.monitor import StateSource
from lightning_accum.rules._eprop_windows import FoldConstants, FoldedWindow
from lightning_accum.rules.third_factor import PotentialRule, of_neuron


class GradientRule(PotentialRule):
    """Base of rules that learn from the gradient within a step; OTTT describes the arguments."""

    def of_cell(self, name: str, cell: Cell) -> Self:
        """Returns the rule with the neuron's constants; it may not pass gradients through time."""
        found = super().of_cell(name, cell)
        gradient = getattr(cell.neuron, "gradient", "step")
        if gradient in ("none", "time"):
            raise ValueError(
                f"The neuron of cell `{name}` should pass the gradient within a step, and not"
                f" through time, for `{type(self).__name__}` to record. Found"
                f" `gradient = {gradient!r}`: make it as"
                f' `{type(cell.neuron).__name__}(..., gradient="step")`.'
            )
        return found

    def states(self) -> Mapping[str, StateSource]:
        """Records the gradient by the neuron's output, the potential and the threshold."""
        return {"gradient": GradientMonitor, **super().states()}


class OTTT(GradientRule):
    r"""Changes a weight by the gradient at each step, times the low-pass of the input.

    .. math:: \Delta w_{ji} = -\eta \sum_t \frac{\partial E}{\partial z_j(t)}\, \psi_j(t)\,
              \bar x_i(t), \qquad \bar x_i(t) = \alpha\, \bar x_i(t - \Delta t) + x_i(t)

    with the gradient of the loss by the spikes :math:`z` of the same step, the pseudo-derivative
    :math:`\psi` and the decay :math:`\alpha` of the membrane. The gradient runs through the layers
    of one step and not through time: make :class:`~lightning_accum.nn.SurrogateLIF` neurons with
    ``gradient="step"``, and call ``backward()`` on the loss after each step or once. Lightning
    divides the loss by ``accumulate_grad_batches``, and so this rule's change. The rule records the
    gradient by a :class:`~lightning_accum.observe.GradientMonitor`. It cannot know the scale of a
    ``GradScaler`` outside of Lightning: divide the change by it,
    ``trainer.update(scale=1 / scaler.get_scale())``, in every step.

    A spike also acts in later steps, through the memory of the spiking layer above. With
    ``tc_next``, the rule follows this effect too, and is OTPE; with
    :math:`\kappa = e^{-\Delta t / \tau_\text{next}}`,

    .. math:: \Delta w_{ji} = -\eta \sum_t \frac{\partial E}{\partial z_j(t)}
              \sum_{t' \le t} \kappa^{t - t'} \psi_j(t')\, \bar x_i(t')

    Without it, it is also OSTL, for layers that are not recurrent.

    Args:
        lr: rate :math:`\eta`.
        tc_mem, surrogate, membrane, threshold, graded_input: as for :class:`EProp`.
        tc_next: time constant of the neurons of the layer above, in ms; without their memory when
            ``None``, as below a :class:`~lightning_accum.nn.LeakyIntegrator`, through whose memory
            the gradient passes already.
        batch_reduction: the sum follows the gradient of the loss, be this a sum or a mean over
            samples; a mean of a mean loss would be divided by the size of the batch twice. Over
            several processes a sum is averaged, as DDP averages gradients.

    Raises:
        TypeError: if the surrogate is of another type.
        ValueError: if the time constant is not that of the neuron, or the neuron keeps no state.

    Example:
        >>> import torch
        >>> from lightning_accum import OTTT, Serial, RuleTrainer
        >>> from lightning_accum.nn import SurrogateLIF
        >>> layer = Serial(torch.nn.Linear(3, 4), SurrogateLIF(4, gradient="step", time_dim=0))
        >>> readout = torch.nn.Linear(4, 2)
        >>> trainer = RuleTrainer(OTTT(lr=0.01), time_dim=0)
        >>> unit = trainer.register_cell("hidden", layer.cell)
        >>> readout(layer(torch.ones(10, 1, 3))).sum().backward()
        >>> trainer()
        >>> unit.cell.updater.weight.neg.shape
        torch.Size([4, 3])

    Source:
        Xiao et al. 2022, "Online training through time for spiking neural networks",
        arXiv:2210.04195. OTPE: Summe, Schaefer & Joshi 2023, "Estimating post-synaptic effects for
        online training of feed-forward SNNs", arXiv:2311.16151. OSTL: Bohnstingl et al. 2022,
        "Online spatio-temporal learning in deep neural networks", arXiv:2007.12723.
    """

    lr: float
    tc_mem: float = of_neuron("tc_mem", needed=True)
    tc_next: float | None = field(default=None, kw_only=True)

    def prepare(self, recording: Recording) -> FoldedWindow:
        """Folds the gradients and pseudo-derivatives of a window, backwards in time."""
        gradient = widened(recording.activity("gradient"))
        signal = LearningSignal(gradient, None, gradient.shape, every_step=True)
        kappa = 0.0 if self.tc_next is None else decay_factor(self.tc_next, recording.dt)
        return FoldedWindow(recording, self, FoldConstants(kappa, 0.0, 0.0, 0.0, 0.0), signal)

    def terms(self, window: Window) -> Sequence[Change]:
        """Returns the gradient by the potential, times the low-pass of the input."""
        folded: FoldedWindow = window.prepared
        return folded.terms(window, window.pre.trace(self.tc_mem), self.lr)
