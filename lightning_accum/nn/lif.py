"""Leaky integrate-and-fire neurons."""

from __future__ import annotations

from typing import final

from torch import Tensor

from lightning_accum.nn.neuron import Neurons
from lightning_accum.nn.state import NeuronState, Step


@final
class LIF(Neurons):
    r"""Leaky integrate-and-fire neurons.

    .. math::
        V_t = V_\text{rest} + (V_{t-1} - V_\text{rest}) \, e^{-\Delta t / \tau} + I_t, \qquad
        s_t = [V_t \ge V_\text{th}]

    A neuron that spikes is reset, and held at reset for its refractory period. The state is kept
    from call to call until :meth:`reset`; a batch of another size starts from rest. A sequence
    gives the same spikes whether it is passed whole or step by step.

    Args:
        size: shape of the layer, without batch and time.
        tc_mem: time constant of the membrane :math:`\tau`, in ms.
        v_threshold: threshold :math:`V_\text{th}`.
        v_reset: potential after a spike.
        v_rest: resting potential :math:`V_\text{rest}`.
        refractory: refractory period in ms, rounded to whole steps.
        dt: length of a time step :math:`\Delta t`, in ms.
        time_dim: ``None`` for one step per call, 0 for a sequence with time first.
        spike_dtype: dtype of the spikes, by default that of the input.
        inhibition: lateral inhibition, e.g. `WinnerTakeAll`.
        compile: whether sequences are integrated ten steps at a time, by code that is compiled for
            the first sequence, which takes seconds and needs a C++ compiler. Potentials differ by
            rounding, and so may spikes of potentials equal to the threshold. Not supported with
            ``inhibition``.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> neurons = LIF(2, tc_mem=20.0, refractory=1.0, time_dim=0)
        >>> neurons(torch.tensor([[[1.0, 0.6]], [[1.0, 0.6]], [[1.0, 0.6]]])).squeeze(1)
        tensor([[1., 0.],
                [0., 1.],
                [1., 0.]])
    """

    def _step(self, current: Tensor, state: NeuronState) -> Step:
        return self._integrate_and_fire(current, state, self.v_threshold - self.v_reset)
