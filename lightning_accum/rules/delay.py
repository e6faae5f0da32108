"""STDP on spike-time differences that a learned delay of each synapse shifts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_strings
from lightning_accum.cells.cell import Cell
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.terms import CustomChange, Parts
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.engine.vjp.matrix import Outer
from lightning_accum.engine.window import Window
from lightning_accum.functional.kernels import ExponentialKernel
from lightning_accum.functional.reductions import ReductionFn
from lightning_accum.rules.base import Rule
from lightning_accum.rules.kernel import Kernel, changes, check_kernel
from lightning_accum.sparse.events import Events

_CHUNK_ELEMENTS = 1 << 20


class _Synapses(Outer):
    """A matrix with an entry for each synapse, whatever its module makes of it."""

    def check(self, post: Tensor, pre: Tensor) -> None:
        """Sees to the shapes; a connection with delays has a past, and is not run for it."""
        param: Tensor = getattr(self.module, self.name)
        expected = (post.shape[-1], pre.shape[-1])
        if tuple(param.shape) != expected:
            raise ValueError(
                f"Parameter {self.place} should have an entry for each synapse, shape"
                f" {list(expected)}. Found {list(param.shape)}."
            )


class SpikePairs(CustomChange):
    """Nearest pairs of spikes, synapse by synapse: every spike visits a row of them.

    Args:
        kernel: change for a time difference, post minus pre minus delay, in ms.
        post: postsynaptic spikes, ``[T, B, ..., out]``.
        pre: presynaptic spikes, ``[T, B, ..., in]``.
        delay: of each synapse, in ms, ``[out, in]``.
    """

    def __init__(self, kernel: Kernel, post: Signal, pre: Signal, delay: Tensor) -> None:
        super().__init__(post.activity.shape[1])
        self.kernel = kernel
        self.post = post
        self.pre = pre
        self.delay = delay

    def parts(self, samples: slice, vjp: WeightVJP) -> Parts:
        """What the spikes of both sides change; two in one step are one pair."""
        sides = [
            [_rows(values, samples) for values in (side.activity != 0, side.age())]
            for side in (self.post, self.pre)
        ]
        (posts, post_age), (pres, pre_age) = sides
        delay = self.delay.to(post_age.dtype)
        up, down = torch.zeros_like(delay), torch.zeros_like(delay)
        self._visit(posts, pre_age, delay, 1.0, up, down)
        earlier = post_age.masked_fill(post_age == 0, torch.inf)
        self._visit(pres, earlier, delay.T, -1.0, up.T, down.T)
        return up, down

    def _visit(
        self, spikes: Tensor, age: Tensor, delay: Tensor, sign: float, up: Tensor, down: Tensor
    ) -> None:
        """Adds a row for every spike: the other side's ages as it sees them."""
        events = Events(spikes)
        chunk = max(1, _CHUNK_ELEMENTS // max(1, age.shape[1]))
        for rows, columns in zip(
            events.rows.split(chunk), events.columns.split(chunk), strict=True
        ):
            change = changes(self.kernel, sign * age[rows] - delay[columns])
            up.index_add_(0, columns, change.clamp(min=0))
            down.index_add_(0, columns, change.neg_().clamp_(min=0))


def _rows(values: Tensor, samples: slice) -> Tensor:
    """``[T, B, ..., N]`` of some samples as ``[K, N]``."""
    return values[:, samples].flatten(0, -2)


class DelayRule(Rule):
    """Base of the rules on shifted time differences.

    Args:
        hyperparameters: those of the rule, by name.
        delay: name of the connection's delays, ``[out, in]`` in ms.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: of :class:`~lightning_accum.rules.base.Rule`.
    """

    def __init__(
        self,
        hyperparameters: dict[str, Any],
        delay: str = "delay",
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        every = {**hyperparameters, "delay": delay}
        super().__init__(every, dt=dt, batch_reduction=batch_reduction, **options)

    def check(self, h: Hyperparameters) -> None:
        """Raises an error if hyperparameters make no sense."""
        super().check(h)
        check_strings(delay=h.delay)

    def check_cell(self, name: str, cell: Cell, h: Hyperparameters) -> None:
        """Raises a ``ValueError`` if the connection has no delays of the parameter's shape."""
        super().check_cell(name, cell, h)
        delay = getattr(cell.connection, h.delay, None)
        for param in h.params:
            weight = getattr(cell.connection, param, None)
            if isinstance(weight, Tensor) and (
                not isinstance(delay, Tensor) or delay.shape != weight.shape
            ):
                found = list(delay.shape) if isinstance(delay, Tensor) else type(delay).__name__
                raise ValueError(
                    f"Argument `delay` should name delays of the shape of parameter `{param}` of"
                    f" cell `{name}`, {list(weight.shape)}. Found `delay = {h.delay!r}`, {found}:"
                    f" give the {type(cell.connection).__name__} such a parameter or buffer, in ms."
                )

    def reads(self, h: Hyperparameters) -> tuple[str, ...]:
        """The delays."""
        return (h.delay,)

    def kernel(self, h: Hyperparameters) -> Kernel:
        """The change for a time difference."""
        kernel: Kernel = h.kernel
        return kernel

    def _weight_vjp(self, module: nn.Module, name: str, place: str) -> WeightVJP:
        """Weights and delays alike have an entry for each synapse."""
        return _Synapses(module, name, place)

    def terms(self, window: Window, h: Hyperparameters) -> Sequence[CustomChange]:
        """The kernel of every nearest pair."""
        delay = window.tensors[h.delay]
        return (SpikePairs(self.kernel(h), window.post, window.pre, delay),)


@final
class DelayAdjustedSTDP(DelayRule):
    r"""Pair STDP on nearest spikes, where each synapse's delay shifts the time difference.

    .. math::
        \Delta w_{oi} = \sum_{t:\, s_o(t) \lor s_i(t)} \begin{cases}
            \eta_+\, e^{-t_\Delta / \tau_+} & t_\Delta \ge 0 \\
            \eta_-\, e^{\,t_\Delta / \tau_-} & t_\Delta < 0
        \end{cases}
        \qquad t_\Delta = t_o - t_i - d_{oi}

    with :math:`t_o` and :math:`t_i` the times of the latest spikes up to :math:`t`, the step of
    either one's spike. A presynaptic spike counts from when it arrives: what arrives before the
    answer (:math:`t_\Delta \ge 0`) changes by :math:`\eta_+`, what arrives after it by
    :math:`\eta_-`. With ``params=["delay"]`` the delays themselves learn; there a positive
    :math:`\eta_+` and a negative :math:`\eta_-` bring arrival and answer together from both sides.

    Args:
        lr_pos: rate :math:`\eta_+` where the presynaptic spike arrives first.
        lr_neg: rate :math:`\eta_-` where the postsynaptic spike comes first.
        tc_pos: time constant :math:`\tau_+`, in ms.
        tc_neg: time constant :math:`\tau_-`, in ms.
        delay: name of the connection's delays, a parameter or buffer ``[out, in]`` in ms.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: ``time_dim``, ``params``, ``carry`` and ``picker`` of
            :class:`~lightning_accum.rules.base.Rule`.

    Raises:
        ValueError: if the connection has no such delays, or a time constant is not positive.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import DelayAdjustedSTDP, Cell
        >>> fc = nn.Linear(1, 1, bias=False)
        >>> fc.delay = nn.Parameter(torch.tensor([[3.0]]), requires_grad=False)
        >>> rule = DelayAdjustedSTDP(lr_pos=1.0, lr_neg=-1.0, params=["delay"])
        >>> unit = rule.register_cell("enc", Cell(fc, nn.Identity()))
        >>> for pre, post in ((1.0, 0.0), (0.0, 1.0)):  # the answer, 1 ms after the spike
        ...     _ = unit.cell.connection(torch.tensor([[pre]]))
        ...     _ = unit.cell.neuron(torch.tensor([[post]]))
        >>> rule()
        >>> rule.update()
        >>> fc.delay.data  # it arrived 2 ms after the answer: shorter, by exp(-2 / 20)
        tensor([[2.0952]])

    Source:
        Nadafian & Ganjtabesh 2024, "Bioplausible unsupervised delay learning for extracting
        spatiotemporal features in spiking neural networks", doi:10.1162/neco_a_01674.
    """

    def __init__(
        self,
        lr_pos: float,
        lr_neg: float,
        tc_pos: float = 20.0,
        tc_neg: float = 20.0,
        delay: str = "delay",
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        rates = {"lr_pos": lr_pos, "lr_neg": lr_neg, "tc_pos": tc_pos, "tc_neg": tc_neg}
        super().__init__(rates, delay, dt, batch_reduction, **options)

    def kernel(self, h: Hyperparameters) -> Kernel:
        """One exponential on either side."""
        return ExponentialKernel(h.lr_pos, h.lr_neg, tc_post=h.tc_neg, tc_pre=h.tc_pos)


@final
class DelayAdjustedKernelSTDP(DelayRule):
    r"""Any kernel of the nearest spikes' time difference, shifted by each synapse's delay.

    .. math::
        \Delta w_{oi} = \sum_{t:\, s_o(t) \lor s_i(t)} K\left(t_o - t_i - d_{oi}\right)

    as :class:`DelayAdjustedSTDP` with a kernel of one's own.

    Args:
        kernel: as of :class:`~lightning_accum.KernelSTDP`.
        delay: name of the connection's delays, a parameter or buffer ``[out, in]`` in ms.
        dt: step, in ms.
        batch_reduction: ``"mean"``, ``"sum"``, or any ``fn(per_sample, dim)``.
        **options: ``time_dim``, ``params``, ``carry`` and ``picker`` of
            :class:`~lightning_accum.rules.base.Rule`.

    Raises:
        TypeError: if the kernel is no callable.
        ValueError: if the connection has no such delays.

    Example:
        >>> from lightning_accum import DelayAdjustedKernelSTDP
        >>> from lightning_accum.functional import GaussianKernel
        >>> rule = DelayAdjustedKernelSTDP(GaussianKernel(0.1, width=5.0), params=["weight"])
    """

    def __init__(
        self,
        kernel: Kernel,
        delay: str = "delay",
        dt: float = 1.0,
        batch_reduction: ReductionFn | str = "mean",
        **options: Any,
    ) -> None:
        super().__init__({"kernel": kernel}, delay, dt, batch_reduction, **options)

    def check(self, h: Hyperparameters) -> None:
        """Raises a ``TypeError`` if the kernel is no callable."""
        super().check(h)
        check_kernel(h.kernel)
