"""The optimizers that apply updates in a fit: the module's own, or one that is added to its."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import lightning.pytorch as pl
from lightning.pytorch.core.optimizer import LightningOptimizer, _MockOptimizer

from lightning_accum.optim import UpdateOptimizer
from lightning_accum.updates import Updater

Hook = Callable[[UpdateOptimizer], None]


def attach_optimizers(
    trainer: pl.Trainer, updaters: Sequence[Updater], lr: float, prepare: Hook, finish: Hook
) -> tuple[list[UpdateOptimizer], bool]:
    """Has the module's own UpdateOptimizers apply ``updaters``, or adds one where there is none.

    Args:
        trainer: in whose fit they are.
        updaters: what is to be applied.
        lr: factor of every change, for one that is added.
        prepare: is called by each before it applies anything.
        finish: is called by each when it has applied everything.

    Returns:
        The optimizers, and whether the module has them, and so steps them itself.

    Raises:
        ValueError: if the module's own leave out a parameter.
    """
    params = {id(p): p for u in updaters for p in (getattr(u.parent, name) for name in u.names)}
    own = [
        o
        for o in trainer.optimizers
        if isinstance(o, UpdateOptimizer) and not o.added and o.ids & set(params)
    ]
    if own:
        covered = set().union(*(optimizer.ids for optimizer in own))
        left = [f"{u.label}: {n}" for u in updaters for n in u.names
                if id(getattr(u.parent, n)) not in covered]  # fmt: skip
        if left:
            raise ValueError(
                "The UpdateOptimizer that `configure_optimizers` returns should hold every"
                f" parameter that cells train. Found none that holds {left}: add them, or return"
                " no UpdateOptimizer, and one is made."
            )
    optimizers = own or [UpdateOptimizer(list(params.values()), lr)]
    for optimizer in optimizers:
        optimizer.added = not own  # then no other callback takes it for the module's own
        optimizer.attach(updaters, prepare, finish)
    if not own:
        _add(trainer, optimizers[0])
    return optimizers, bool(own)


def _add(trainer: pl.Trainer, optimizer: UpdateOptimizer) -> None:
    """Adds an optimizer for Lightning to save, resume and monitor.

    What ``self.optimizers()`` gives to the module, and what automatic optimization steps, stays.
    """
    shown = trainer.strategy._lightning_optimizers
    if trainer.lightning_module.automatic_optimization and not shown:
        mock = _MockOptimizer()
        shown = [LightningOptimizer._to_lightning_optimizer(mock, trainer.strategy)]
    others = [other for other in trainer.optimizers if not isinstance(other, _MockOptimizer)]
    trainer.optimizers = [*others, optimizer]
    trainer.strategy._lightning_optimizers = shown
