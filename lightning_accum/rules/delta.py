"""The delta rule: learns a readout from its error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from lightning_accum._checks import is_number
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.engine.recording import Recording
from lightning_accum.engine.terms import Term
from lightning_accum.engine.window import Window
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.rules._recorded import RecordedSignal
from lightning_accum.rules.base import Rule
from lightning_accum.rules.error import check_time_constant, errors, from_neuron


@final
class DeltaRule(Rule):
    r"""Changes a readout by its error, times the low-pass of its input.

    .. math:: \Delta w_{kj} = -\eta \sum_t \delta_k(t)\, \bar z_j(t), \qquad
              \bar z_j(t) = \kappa\, \bar z_j(t - \Delta t) + z_j(t), \quad
              \kappa = e^{-\Delta t / \tau}

    For a leaky readout :math:`y(t) = \kappa\, y(t - \Delta t) + W z(t)` and the gradient
    :math:`\delta_k(t) = \partial E / \partial y_k(t)` of a loss, this is the gradient of the loss by
    the weights, :math:`\Delta W = -\eta\, \partial E / \partial W`.

    Pass the error to the rule's call, ``rule(error=error)``, or have a callback pass it: the
    ``given_keys`` name entries of what ``training_step`` returns. It has shape ``[T, B, classes]``,
    or ``[B, classes]`` if it is the same in all steps, and belongs to a sample: it is not divided by
    the size of the batch.

    Args:
        lr: rate :math:`\eta`.
        tc_readout: time constant :math:`\tau` of the readout, in ms. When ``None``, that of a
            :class:`~lightning_accum.nn.LeakyIntegrator`; without one, the input itself counts.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: ``time_dim``, ``params``, ``carry``, ``backend`` and ``picker`` of
            :class:`~lightning_accum.rules.base.Rule`.

    Raises:
        ValueError: if the time constant is not that of the readout.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import DeltaRule, Serial
        >>> layer = Serial(nn.Linear(2, 1, bias=False), nn.Identity())
        >>> rule = DeltaRule(lr=0.1)
        >>> unit = rule.register_cell("readout", layer.cell)
        >>> y = layer(torch.tensor([[1.0, 0.0]]))
        >>> rule(error=torch.tensor([[2.0]]))
        >>> unit.cell.updater.weight.neg
        tensor([[0.2000, 0.0000]])

    Source:
        Widrow & Hoff 1960; for leaky readouts of spikes: Bellec et al. 2020,
        doi:10.1038/s41467-020-17236-y.
    """

    def __init__(
        self,
        lr: float,
        tc_readout: float | None = None,
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        own = {"lr": lr, "tc_readout": tc_readout}
        super().__init__(own, dt=dt, batch_reduction=batch_reduction, **options)

    def check(self, h: Hyperparameters) -> None:
        """Raises a ``ValueError`` if hyperparameters make no sense."""
        super().check(without_none(h))

    def terms(self, window: Window, h: Hyperparameters) -> Term:
        """The error, times the low-pass of the input."""
        pre = window.pre if h.tc_readout is None else window.pre.trace(h.tc_readout)
        return Term(-h.lr, window.prepared[window.steps], pre)
