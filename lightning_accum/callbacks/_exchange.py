"""Sums the pending changes of a trainer's cells over several processes."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import Share, exchange, processes


def shares_of(trainer: CellTrainer, ids: set[int] | None = None) -> list[Share]:
    """Returns the pending changes of a trainer's cells, and counts their samples from zero.

    Args:
        trainer: the trainer.
        ids: the ``id`` of every parameter to include. Default: all.
    """
    shares = []
    for updater, cells in trainer.updaters.values():
        for name in updater.names:
            param = updater.target(name)
            if ids is None or id(param) in ids:
                samples = _samples(trainer, cells, name)
                shares.append(Share(getattr(updater, name), param.detach(), samples))
    return shares


def exchange_pending(trainer: CellTrainer, ids: set[int] | None = None) -> None:
    """Sums what is pending over processes; every process has to call this.

    Args:
        trainer: the trainer.
        ids: the ``id`` of every parameter to include. Default: all.
    """
    if ids is None and processes() == 1:
        trainer.forget_samples()
    else:
        exchange(shares_of(trainer, ids))


def _samples(trainer: CellTrainer, cells: Sequence[str], param: str) -> int | None:
    """Returns the weight of a change in the mean over processes; ``None`` if changes are summed."""
    own = [cell for cell in cells if param in trainer.params_of(cell)]
    samples = sum(trainer.take_samples(cell, param) for cell in own)
    found = [trainer.reduction_of(cell) for cell in own]
    summed = found and all(how is not None and not how.averages for how in found)
    if not summed:
        return samples
    return 1 if trainer.averages_processes else None


def check_exchangeable(trainer: CellTrainer) -> None:
    """Raises if several processes cannot compute the same update as one process would.

    Args:
        trainer: the trainer.

    Raises:
        ValueError: if a cell reduces its batch by anything but sum and mean, or two cells reduce
            the same parameter in different ways.
    """
    if processes() == 1:
        return
    for updater, cells in trainer.updaters.values():
        known: dict[str, str] = {}
        for cell in cells:
            how, params = trainer.reduction_of(cell), trainer.params_of(cell)
            if how is None:
                continue
            others = {known.setdefault(param, how.name) for param in params}
            if not how.adds or others != {how.name}:
                raise ValueError(
                    f"Argument `batch_reduction` of cell `{cell}` should be 'mean' or 'sum', the"
                    " same for all cells of a parameter, if several processes train together:"
                    " other reductions of the processes' batches cannot be combined. Found"
                    f" `{how.name}` for {sorted(params)} of {updater.label}."
                )
