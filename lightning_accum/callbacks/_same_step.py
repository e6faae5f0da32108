"""The check that encoders and readouts have the ``dt`` of the cells."""

from __future__ import annotations

import math
import warnings

from torch import nn

from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.nn import LeakyIntegrator, PoissonEncoder


def check_same_step(trainer: CellTrainer, model: nn.Module) -> None:
    """Warns of each encoder or readout in a model whose ``dt`` is that of none of the cells.

    The ``dt`` of neurons is compared when their cells are registered.

    Args:
        trainer: the trainer of the cells.
        model: the model.
    """
    states = [getattr(state, "hyperparameters", None) for _, state in trainer.cells]
    known = sorted({h.dt for h in states if h is not None})
    for name, module in model.named_modules():
        if not isinstance(module, (PoissonEncoder, LeakyIntegrator)):
            continue
        if known and not any(math.isclose(module.dt, dt) for dt in known):
            should = " or ".join(f"{dt:g}" for dt in known)
            warnings.warn(
                f"Argument `dt` of the {type(module).__name__} `{name}` should be the step of the"
                f" cells, {should} ms. Found `dt = {module.dt:g}`, so that its rate or its time"
                f" constant is another one than was given: give it `dt={known[0]:g}`.",
                UserWarning,
                stacklevel=2,
            )
