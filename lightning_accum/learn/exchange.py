"""Pending updates of all processes, summed in one all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from lightning_accum.functional.reductions import reduction
from lightning_accum.learn.rule import Rule
from lightning_accum.learn.trainer import CellTrainer
from lightning_accum.updates import Accumulator


class Share(NamedTuple):
    """What a process has pending for one parameter.

    Args:
        accumulator: which has it.
        param: the parameter.
        samples: how many samples of this process it is the mean of; ``None`` for a sum.
    """

    accumulator: Accumulator
    param: Tensor
    samples: int | None


def processes(group: Any = None) -> int:
    """How many processes train together, 1 without any distributed run.

    Example:
        >>> processes()
        1
    """
    return dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1


def is_first(group: Any = None) -> bool:
    """Whether this process is the first of those that train together, or alone.

    Example:
        >>> is_first()
        True
    """
    return processes(group) == 1 or dist.get_rank(group) == 0


def exchange(shares: Sequence[Share], group: Any = None) -> None:
    r"""Gives every process what all of them have pending together, in one all-reduce.

    .. math::
        \Delta = \sum_r \Delta_r \quad\text{for sums}, \qquad
        \Delta = \frac{\sum_r n_r\, \Delta_r}{\sum_r n_r} \quad\text{for means of } n_r
        \text{ samples},

    each part by itself. A process without samples takes part with zeros. Afterwards all hold the
    same bits. Where there is one process alone, nothing happens.

    Args:
        shares: what is pending, of the same parameters in the same order in every process.
        group: process group; the default one when ``None``.
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
        share.accumulator.clear()
        share.accumulator.accumulate(pos, neg)


def shares_of(trainer: CellTrainer, ids: set[int] | None = None) -> list[Share]:
    """What a trainer's cells have pending; the samples in it are counted anew from here on.

    Args:
        trainer: the trainer.
        ids: the ``id`` of every parameter to take; all when ``None``.
    """
    shares = []
    for updater, cells in trainer.updaters.values():
        for name in updater.names:
            param = updater.target(name)
            if ids is None or id(param) in ids:
                samples = _samples(trainer, cells, name)
                shares.append(Share(getattr(updater, name), param.detach(), samples))
    return shares


def _samples(trainer: CellTrainer, cells: Sequence[str], param: str) -> int | None:
    if not isinstance(trainer, Rule):
        return 1  # the mean over processes
    found: set[bool] = set()
    samples = 0
    for cell in cells:
        state = trainer._state_for(cell)
        if param in state.hyperparameters.params:
            found.add(reduction(state.hyperparameters.batch_reduction).averages)
            samples += state.samples.pop(param, 0)
    return None if found == {False} else samples


def check_exchangeable(trainer: CellTrainer) -> None:
    """Turns away what several processes cannot make as one would.

    Raises:
        ValueError: if a cell reduces its batch by anything but sum and mean, or two cells reduce
            the same parameter in different ways.
    """
    if processes() == 1 or not isinstance(trainer, Rule):
        return
    for updater, cells in trainer.updaters.values():
        known: dict[str, str] = {}
        for cell in cells:
            h = trainer._state_for(cell).hyperparameters
            how = reduction(h.batch_reduction)
            others = {known.setdefault(param, how.name) for param in h.params}
            if not how.adds or others != {how.name}:
                raise ValueError(
                    f"Argument `batch_reduction` of cell `{cell}` should be 'mean' or 'sum', the"
                    " same for all cells of a parameter, where several processes train together:"
                    " nothing else can be made of what each of them has reduced. Found"
                    f" `{how.name}` for {sorted(h.params)} of {updater.label}."
                )
