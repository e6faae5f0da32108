"""Leaky integrate-and-fire neurons with an adaptive threshold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, warn_below_step
from lightning_accum.nn._arguments import decay_in_step
from lightning_accum.nn.neuron import Neurons
from lightning_accum.nn.state import NeuronState, Step
from lightning_accum.sparse.kernel_online import SpikingNeurons


@final
class AdaptiveLIF(Neurons):
    r"""Leaky integrate-and-fire neurons with a threshold that rises with each neuron's activity.

    .. math::
        s_t = [V_t \ge V_\text{th} + \theta_t], \qquad
        \theta_{t+1} = \theta_t \, e^{-\Delta t / \tau_\theta}
        + \frac{\theta_+}{B} \sum_b s_{t,b}

    A neuron that spikes often becomes harder to excite, so that all neurons take part
    (homeostasis). Each neuron has one :math:`\theta` for all samples of the batch. It is learned:
    it changes only in training mode, survives :meth:`reset`, and is a buffer of the state dict.
    Otherwise these neurons are like :class:`LIF`.

    Args:
        size: shape of the layer, without batch and time.
        tc_mem: time constant of the membrane, in ms.
        theta_plus: rise of the threshold :math:`\theta_+` if all samples of the batch spike.
        tc_theta: time constant with which the threshold returns, in ms; ``inf`` if it never does.
        **options: the other options of :class:`LIF`: ``v_threshold``, which is
            :math:`V_\text{th}` without adaptation, ``v_reset``, ``v_rest``, ``refractory``, ``dt``,
            ``time_dim``, ``spike_dtype``, ``inhibition`` and ``compile``.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> neurons = AdaptiveLIF(1, tc_mem=20.0, theta_plus=0.5, time_dim=0)
        >>> neurons(torch.tensor([[[1.2]], [[1.2]], [[1.6]]])).flatten()
        tensor([1., 0., 1.])
        >>> neurons.theta
        tensor([1.])

    Source:
        Diehl & Cook 2015, "Unsupervised learning of digit recognition using spike-timing-dependent
        plasticity", doi:10.3389/fncom.2015.00099.
    """

    theta: Tensor

    def __init__(
        self,
        size: int | Sequence[int],
        tc_mem: float = 20.0,
        theta_plus: float = 0.05,
        tc_theta: float = math.inf,
        **options: Any,
    ) -> None:
        super().__init__(size, tc_mem, **options)
        check_finite(theta_plus=theta_plus)
        if not theta_plus >= 0:
            raise ValueError(
                "Argument `theta_plus` should be a non-negative potential. "
                f"Found `theta_plus = {theta_plus}`."
            )
        self.theta_plus = theta_plus
        self.tc_theta = tc_theta
        self.decay_theta = decay_in_step("tc_theta", tc_theta, self.dt)
        warn_below_step(self.dt, type(self).__name__, tc_theta=tc_theta)
        self.register_buffer("theta", torch.zeros(self.size))

    def _step(self, current: Tensor, state: NeuronState) -> Step:
        threshold = self.v_threshold - self.v_reset + state.theta.to(current)
        spikes, state = self._integrate_and_fire(current, state, threshold)
        if self.training and len(spikes):  # no samples have no mean
            rise = self.theta_plus * spikes.mean(0).to(state.theta)
            state = state._replace(theta=self.decay_theta * state.theta + rise)
        return Step(spikes, state)

    def _constants(self, *adaptation: float) -> SpikingNeurons:
        own = (self.decay_theta, self.theta_plus) if self.training else adaptation
        return super()._constants(*own)

    def _theta(self, like: Tensor) -> Tensor:
        return self.theta.view(-1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AdaptiveLIF:
        """Moves the module; ``theta`` does not become half precision, which loses small rises."""
        theta = self.theta
        super()._apply(fn, recurse)
        if self.theta.dtype in (torch.float16, torch.bfloat16):
            self.theta = theta.to(self.theta.device)
        return self
