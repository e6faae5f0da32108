"""STDP by any function of the difference between the nearest spikes' times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from typing_extensions import Self

from lightning_accum._checks import check_type
from lightning_accum.engine import Change, Term, Window
from lightning_accum.functional.kernels import Kernel, changes
from lightning_accum.functional.reductions import reduction
from lightning_accum.rules._spike_pairs import SpikePairs
from lightning_accum.rules.base import Rule

_STEPS = 100  # between spikes of which a kernel that learns says something
_TINY = 1e-12


class KernelSTDP(Rule):
    r"""STDP by any kernel of the spike-time difference, on nearest pairs.

    .. math::
        \Delta w = \sum_t s_\text{post}(t)\, K\left(t - t_\text{pre}\right)
                 + \sum_t s_\text{pre}(t)\, K\left(t_\text{post} - t\right)

    with :math:`t_\text{pre}` and :math:`t_\text{post}` the times of the latest spike of either side
    up to :math:`t`. Two spikes in one step are one pair, :math:`K(0)`.

    Args:
        kernel: returns the signed change for a tensor of differences, post minus pre, in ms: an
            :class:`~lightning_accum.functional.ExponentialKernel`, a
            :class:`~lightning_accum.functional.GaussianKernel`, or any elementwise function.
        **options: those of :class:`Rule`.

    Raises:
        TypeError: if the kernel is not callable.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from lightning_accum import KernelSTDP, Serial
        >>> from lightning_accum.functional import GaussianKernel
        >>> layer = Serial(nn.Linear(1, 1, bias=False), nn.Identity())
        >>> _ = nn.init.ones_(layer.connection.weight)
        >>> rule = KernelSTDP(GaussianKernel(1.0, width=2.0))
        >>> unit = rule.register_cell("enc", layer.cell)
        >>> for spike in (1.0, 0.0, 1.0):
        ...     _ = layer(torch.tensor([[spike]]))
        >>> rule()
        >>> unit.cell.updater.weight.pos  # the spikes of both sides come together, twice
        tensor([[2.]])

    Source:
        Morrison, Diesmann & Gerstner 2008, doi:10.1007/s00422-008-0233-1, sec. 4.1.2
        (nearest-neighbor schemes).
    """

    _traces = 3

    kernel: Kernel

    def check(self, h: Self) -> None:
        """Raises a ``TypeError`` if the kernel is not callable."""
        super().check(h)
        check_kernel(h.kernel)

    @classmethod
    def why_unmoved(cls, h: Mapping[str, Any], device: torch.device) -> str:
        """Returns that the kernel is zero at all differences of a few steps; empty if it is not."""
        return weak_kernel(h["kernel"], h["dt"], device)

    def terms(self, window: Window, h: Self) -> Sequence[Change]:
        """Returns the kernel of the age of the other side's spike, each sign in its own part."""
        pre, post = window.pre, window.post
        if self.backend == "auto" and reduction(h.batch_reduction).adds and window.vjp.is_matrix:
            pairs = SpikePairs(h.kernel, post, pre)
            if pairs.is_fast:
                return (pairs,)
        by_pre = changes(h.kernel, pre.age())
        by_post = changes(lambda age: h.kernel(-age), post.age()).masked_fill_(post.age() == 0, 0)
        return [
            term
            for sign in (1.0, -1.0)
            for term in (
                Term(sign, post, (sign * by_pre).clamp_(min=0)),
                Term(sign, (sign * by_post).clamp_(min=0), pre),
            )
        ]


def check_kernel(kernel: object) -> None:
    """Raises a ``TypeError`` if a kernel is not callable."""
    should = "a callable that takes a tensor of time differences in ms"
    check_type(callable(kernel), "kernel", kernel, should)


def weak_kernel(kernel: Kernel, dt: float, device: torch.device) -> str:
    """Returns how small a kernel is if it is next to nothing, and the remedy; otherwise empty."""
    apart = dt * torch.arange(-_STEPS, _STEPS + 1.0, device=device)
    largest = float(changes(kernel, apart).detach().abs().max())
    if not largest < _TINY:
        return ""
    return (
        f"Its kernel is at most {largest:.0e} for spikes that are up to {_STEPS} steps of {dt:g}"
        " ms apart: it gets differences in ms, not in seconds or in steps, and returns the change"
        " of the weight, so look at its time constant and its factor."
    )
