"""STDP by any function of the difference between the nearest spikes' times."""

from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_accum._checks import check_type
from lightning_accum.engine import Change, CustomChange, Signal, Term, Window
from lightning_accum.engine.rule import Rule
from lightning_accum.engine.terms import Parts
from lightning_accum.engine.vjp import WeightVJP
from lightning_accum.functional.kernels import Coefficients, Kernel, changes, coefficients_of
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.kernel_library import has_kernel
from lightning_accum.sparse.spike_pairs import LatestSpikes, Visit, pair_events

_CHUNK_ELEMENTS = 1 << 20
_LONGEST = 1 << 16
"""Steps of a table of changes; a function of unknown form of longer times is computed each time."""


def check_kernel(kernel: object) -> None:
    """Raises a ``TypeError`` if a kernel is not callable."""
    should = "a callable that takes a tensor of time differences in ms"
    check_type(callable(kernel), "kernel", kernel, should)


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

    Raises:
        TypeError: if the kernel is not callable.

    Example:
        >>> import torch
        >>> from lightning_accum import KernelSTDP, Serial, RuleTrainer
        >>> from lightning_accum.functional import GaussianKernel
        >>> layer = Serial(torch.nn.Linear(1, 1, bias=False), torch.nn.Identity())
        >>> _ = torch.nn.init.ones_(layer.connection.weight)
        >>> trainer = RuleTrainer(KernelSTDP(GaussianKernel(1.0, width=2.0)), time_dim=0)
        >>> unit = trainer.register_cell("enc", layer.cell)
        >>> _ = layer(torch.tensor([1.0, 0.0, 1.0]).view(3, 1, 1))
        >>> trainer()
        >>> unit.cell.updater.weight.pos  # the spikes of both sides come together, twice
        tensor([[2.]])

    Source:
        Morrison, Diesmann & Gerstner 2008, doi:10.1007/s00422-008-0233-1, sec. 4.1.2
        (nearest-neighbor schemes).
    """

    kernel: Kernel

    def check(self) -> None:
        """Raises a ``TypeError`` if the kernel is not callable."""
        check_kernel(self.kernel)

    def terms(self, window: Window) -> Sequence[Change]:
        """Returns the kernel of the age of the other side's spike, each sign in its own part."""
        pre, post = window.pre, window.post
        if window.vjp.is_matrix:
            pairs = SpikePairs(self.kernel, post, pre)
            if pairs.is_fast:
                return (pairs,)
        by_pre = changes(self.kernel, pre.age())
        by_post = changes(lambda age: self.kernel(-age), post.age())
        by_post.masked_fill_(post.age() == 0, 0)
        found: list[Change] = []
        for sign in (1.0, -1.0):
            found.append(Term(sign, post, (sign * by_pre).clamp_(min=0)))
            found.append(Term(sign, (sign * by_post).clamp_(min=0), pre))
        return found


# --------------------------------------------------------------- pairs, synapse by synapse
class SpikePairs(CustomChange):
    """Sums a kernel over nearest pairs of spikes: every spike visits all synapses of its neuron."""

    def __init__(
        self, kernel: Kernel, post: Signal, pre: Signal, delay: Tensor | None = None
    ) -> None:
        super().__init__(post.activity.shape[1])
        self.kernel, self.post, self.pre, self.delay = kernel, post, pre, delay

    @property
    def is_fast(self) -> bool:
        """Whether the compiled kernel sums the changes of these pairs."""
        sides = (self.post, self.pre)
        spikes = all(each.activity.dtype == torch.bool for each in sides)
        if not (spikes and has_kernel(self.post.activity.device, self.post.dtype)):
            return False
        if coefficients_of(self.kernel) is not None:
            return True
        return self.delay is None and max(map(_farthest, sides)) < _LONGEST

    def summed(self, vjp: WeightVJP) -> Parts:
        """Returns the parts of all samples, from the compiled kernel if there is one."""
        if self.is_fast and vjp.is_matrix:
            size = self.post.activity.shape[-1], self.pre.activity.shape[-1]
            up, down = (torch.empty(size, dtype=self.post.dtype) for _ in range(2))
            if self._sum_into(up, down):
                return up, down
        return self.parts(slice(None), vjp)

    def _sum_into(self, up: Tensor, down: Tensor) -> bool:
        """Returns whether the compiled kernel has written the sums."""
        delay = None if self.delay is None else self.delay.to(up.dtype).contiguous()
        for own, other, sign in ((self.post, self.pre, 1), (self.pre, self.post, -1)):
            latest = LatestSpikes(other.activity.contiguous(), *other.source.edges_of_age())
            after, dt = sign > 0, sign * other.source.dt
            least = 0 if after else 1  # two spikes in one step are one pair
            visit = Visit(dt, least, self._change(other, dt, least), by_spike=after)
            if not pair_events(up, down, not after, own.source.events(), latest, visit, delay):
                return False
        return True

    def _change(self, latest: Signal, dt: float, least: int) -> Coefficients | Tensor:
        """Returns the kernel's closed form, or a table of it."""
        found = coefficients_of(self.kernel)
        if found is not None:
            return found
        steps = torch.arange(_farthest(latest) + 2, dtype=latest.dtype)
        table = changes(self.kernel, dt * steps).to(latest.dtype)
        table[:least] = table[-1] = 0
        return table

    def parts(self, samples: slice, vjp: WeightVJP) -> Parts:
        """Returns the change by the spikes of both sides; two spikes in one step are one pair."""
        sides = [
            [each[:, samples].flatten(0, -2) for each in (side.activity != 0, side.age())]
            for side in (self.post, self.pre)
        ]
        (posts, post_age), (pres, pre_age) = sides
        delay = self.delay
        if delay is None:
            delay = post_age.new_zeros(post_age.shape[-1], pre_age.shape[-1])
        delay = delay.to(post_age.dtype)
        up, down = torch.zeros_like(delay), torch.zeros_like(delay)
        self._visit(posts, pre_age, delay, 1.0, up, down)
        earlier = post_age.masked_fill(post_age == 0, torch.inf)
        self._visit(pres, earlier, delay.T, -1.0, up.T, down.T)
        return up, down

    def _visit(
        self, spikes: Tensor, age: Tensor, delay: Tensor, sign: float, up: Tensor, down: Tensor
    ) -> None:
        """Adds, for every spike, the kernel of the ages of the other side's latest spikes."""
        events = Events(spikes)
        chunk = max(1, _CHUNK_ELEMENTS // max(1, age.shape[1]))
        for start in range(0, len(events), chunk):
            rows, columns = (each[start : start + chunk] for each in (events.rows, events.columns))
            change = changes(self.kernel, sign * age[rows] - delay[columns])
            up.index_add_(0, columns, change.clamp(min=0))
            down.index_add_(0, columns, change.neg_().clamp_(min=0))


def _farthest(side: Signal) -> int:
    """Returns the most steps since a spike that there may be."""
    steps, before = len(side.activity), side.source.edges_of_age()[0]
    if before is None or not before.numel():
        return steps
    return steps + int(before.masked_fill(before.isinf(), 0).max())
