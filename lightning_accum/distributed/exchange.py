"""The sum of the pending updates of all processes, in one all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from lightning_accum.distributed.world import processes


class Pending(Protocol):
    """An object with a potentiating and a depressing part of a pending change."""

    def parts(self, param: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Returns both reduced parts, ``None`` for an empty one."""

    def replace(self, pos: Tensor, neg: Tensor) -> None:
        """Puts other parts in the place of what is pending."""


class Share(NamedTuple):
    """The share of this process in the pending change of one parameter.

    Args:
        accumulator: holds the pending change.
        param: the parameter.
        samples: the number of samples of this process that the change is the mean of; ``None`` if
            it is a sum.
    """

    accumulator: Pending
    param: Tensor
    samples: int | None


def exchange(shares: Sequence[Share], group: Any = None) -> None:
    r"""Replaces the pending change in each process by that of all processes together.

    .. math::
        \Delta = \sum_r \Delta_r \quad\text{for sums}, \qquad
        \Delta = \frac{\sum_r n_r\, \Delta_r}{\sum_r n_r} \quad\text{for means of } n_r
        \text{ samples},

    for each part by itself, in one all-reduce. A process without samples takes part with zeros.
    Afterwards all processes hold the same bits. A single process changes nothing.

    Args:
        shares: the shares of this process, of the same parameters in the same order everywhere.
        group: the process group; the default one when ``None``.
    """
    if processes(group) == 1 or not shares:
        return
    dtype = torch.float32
    for share in shares:
        dtype = torch.promote_types(dtype, share.param.dtype)
    device = shares[0].param.device
    counts = torch.tensor([share.samples or 0 for share in shares], dtype=dtype)
    sizes = [part for share in shares for part in 2 * [share.param.numel()]]
    flat = torch.empty(len(shares) + sum(sizes), dtype=dtype, device=device)
    flat[: len(shares)] = counts
    places = flat[len(shares) :].split(sizes)
    for i, share in enumerate(shares):
        weight = 1 if share.samples is None else share.samples
        for place, part in zip(places[2 * i :], share.accumulator.parts(share.param), strict=False):
            if part is not None and weight:
                torch.mul(part.reshape(-1), weight, out=place)
            else:
                place.zero_()
    dist.all_reduce(flat, group=group)
    totals = flat[: len(shares)].clamp(min=1)
    for i, share in enumerate(shares):
        pos, neg = (place.view(share.param.shape) for place in places[2 * i : 2 * i + 2])
        if share.samples is not None:
            pos, neg = pos.div_(totals[i]), neg.div_(totals[i])
        share.accumulator.replace(pos, neg)
