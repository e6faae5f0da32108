"""Short-term plasticity: how much of a spike a synapse transmits, by the spikes before it."""

import math
from collections.abc import Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor
from typing_extensions import Self

from lightning_accum._checked_state import StateModule
from lightning_accum._checks import check_finite, check_range, check_value
from lightning_accum._compat.torch_internals import is_traced
from lightning_accum.functional.dtypes import at_least_float32
from lightning_accum.functional.traces import decay_factor
from lightning_accum.nn._arguments import check_times, layer_shape, steps_of


@final
class ShortTermPlasticity(StateModule):
    r"""Turns spikes into what synapses release: less after each spike, or more for a while.

    .. math::
        u(t) &= u^+(t - \Delta t)\, e^{-\Delta t / \tau_f}, \qquad
        u^+(t) = u(t) + U\, (1 - u(t))\, s(t) \\
        x(t) &= 1 - \left(1 - x^+(t - \Delta t)\right) e^{-\Delta t / \tau_r}, \qquad
        x^+(t) = x(t) - y(t) \\
        y(t) &= \left(u(t) + U\, (1 - u(t))\right) x(t)\, s(t)

    with spikes :math:`s`, the share :math:`u` of the resources that a spike uses, and the resources
    :math:`x` that are left. At rest a spike releases :math:`U`. Resources recover with
    :math:`\tau_r` (depression), and a spike's effect on :math:`u` fades with :math:`\tau_f`
    (facilitation).

    Call it between the spikes and their connection: ``neurons(connection(plasticity(spikes)))``.
    Every input has one state for all synapses that it leads to; for others, make another
    connection. A rule that learns on this connection needs ``graded_input=True``.

    The state is kept from call to call until :meth:`reset`; a batch of another size starts at rest.
    Its graph is kept too, until :meth:`reset`, :meth:`detach` or a backward pass, which frees it.
    An input between 0 and 1 counts as the probability of a spike, as in mean-field theory.

    Args:
        size: number of inputs, or the shape of the layer.
        release: the share :math:`U`.
        tc_recovery: time constant :math:`\tau_r` of the resources, in ms; ``None`` if they are
            always full.
        tc_facilitation: time constant :math:`\tau_f`, in ms; ``None`` without facilitation.
        dt: length of a time step :math:`\Delta t`, in ms.
        time_dim: ``None`` for one step per call, 0 for a sequence with time first.

    Raises:
        ValueError: if an argument is out of range.

    Example:
        >>> import torch
        >>> spikes = torch.ones(3, 1, 1)
        >>> ShortTermPlasticity.depressing(1, time_dim=0)(spikes).flatten()
        tensor([0.5000, 0.2503, 0.1256])
        >>> ShortTermPlasticity.facilitating(1, time_dim=0)(spikes).flatten()
        tensor([0.0300, 0.0573, 0.0796])

    Source:
        Tsodyks & Markram 1997, doi:10.1073/pnas.94.2.719; Markram, Wang & Tsodyks 1998,
        "Differential signaling via the same axon of neocortical pyramidal neurons",
        doi:10.1073/pnas.95.9.5323.
    """

    _shown = ("size", "release", "tc_recovery", "tc_facilitation", "dt", "time_dim")

    def __init__(
        self,
        size: int | Sequence[int],
        release: float = 0.5,
        tc_recovery: float | None = 800.0,
        tc_facilitation: float | None = None,
        dt: float = 1.0,
        time_dim: Literal[0] | None = None,
    ) -> None:
        super().__init__()
        check_times(0.0, dt, time_dim)
        check_finite(release=release)
        how = "scale the weights instead, if spikes should do more"
        check_value(0 < release <= 1, "release", release, "a share, above 0 and at most 1", how)
        self.size = layer_shape(size)
        self._sizes = (None, *self.size)
        self.release = release
        self.tc_recovery, self.tc_facilitation = tc_recovery, tc_facilitation
        self.dt, self.time_dim = dt, time_dim
        self.decay = 0.0
        if tc_facilitation is not None:
            self.decay = decay_factor(tc_facilitation, dt, "tc_facilitation")
        self.recovery = 1.0
        if tc_recovery is not None and decay_factor(tc_recovery, dt, "tc_recovery"):
            self.recovery = -math.expm1(-dt / tc_recovery)
        self.reset()

    @classmethod
    def depressing(cls, size: int | Sequence[int], **options: Any) -> Self:
        """Returns depressing synapses, as between pyramidal neurons.

        Args:
            size: as of the class.
            **options: other options of the class, such as ``time_dim``.
        """
        return cls(size, **{"release": 0.5, "tc_recovery": 800.0, **options})

    @classmethod
    def facilitating(cls, size: int | Sequence[int], **options: Any) -> Self:
        """Returns facilitating synapses, as of pyramidal neurons onto some interneurons.

        Args:
            size: as of the class.
            **options: other options of the class, such as ``time_dim``.
        """
        preset = {"release": 0.03, "tc_recovery": 130.0, "tc_facilitation": 530.0}
        return cls(size, **{**preset, **options})

    def reset(self) -> None:
        """Forgets the spikes: the next call starts at rest."""
        self._state = {"used": None, "left": None}

    def forward(self, x: Tensor) -> Tensor:
        """Returns what spikes release.

        Args:
            x: spikes, shape ``[B, *size]``, or ``[T, B, *size]`` with ``time_dim=0``.

        Returns:
            The share of the resources that is released in each step, in the shape of ``x``, in
            float32 or wider; 0 without a spike.

        Raises:
            ValueError: if the shape does not fit, or a value is not from 0 to 1, which is checked
                only on the CPU, where nothing waits for it.
        """
        spikes = steps_of(x, self.size, self.time_dim).to(at_least_float32(x.dtype))
        if x.dtype != torch.bool and not is_traced():
            should = "be spikes, or probabilities of spikes, from 0 to 1"
            check_range("x", x, 1, should, ": pass what the neurons fire")
        shape = spikes.shape[1:]
        kept = self._kept(spikes, shape)
        used, left = kept or (spikes.new_zeros(shape), spikes.new_ones(shape))
        released: list[Tensor] = []
        for spike in spikes:
            used, left = self.decay * used, left + (1 - left) * self.recovery
            rise = self.release * (1 - used)
            released.append((used + rise) * left * spike)
            used, left = used + rise * spike, left - released[-1]
        if self.time_dim is None:
            out = released[0]
        else:
            out = torch.stack(released) if released else torch.empty_like(spikes)
        return self._keep(out, used=used, left=left)
