"""The checks of gradients that rules record or export: no scaler, no optimizer that maximizes."""

from __future__ import annotations

from collections.abc import Iterable

import lightning.pytorch as pl

from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.updates import Updater


def scales_gradients(trainer: pl.Trainer) -> bool:
    """Returns whether a gradient scaler multiplies the loss."""
    return trainer.precision == "16-mixed"


def ascending(trainer: pl.Trainer, updaters: Iterable[Updater]) -> str | None:
    """Returns the name of an optimizer of the updaters' parameters that maximizes, if any.

    Args:
        trainer: the Lightning trainer.
        updaters: the updaters of the cells.
    """
    params = {id(updater.target(name)) for updater in updaters for name in updater.names}
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            if group.get("maximize") and params & {id(param) for param in group["params"]}:
                return type(optimizer).__name__
    return None


def check_recorded_gradients(trainer: CellTrainer, scaled: bool) -> None:
    """Raises a ``ValueError`` if a rule would record gradients that a scaler has scaled.

    Args:
        trainer: the trainer of the cells.
        scaled: whether a gradient scaler multiplies the loss.
    """
    if scaled and any(monitor.records_gradients for monitor in trainer.monitors):
        raise ValueError(
            "Argument `precision` of the Trainer should not be '16-mixed' for a rule that records"
            " gradients. Found a gradient scaler, which multiplies the loss, and a"
            f" `{type(trainer).__name__}`: take 'bf16-mixed' or '32-true'."
        )


def check_exported_gradients(scaled: bool, ascends: str | None) -> None:
    """Raises an error if updates that become gradients would be scaled, or change sign.

    Args:
        scaled: whether a gradient scaler multiplies the loss.
        ascends: the name of an optimizer of the updaters' parameters that maximizes, if any.

    Raises:
        RuntimeError: if a gradient scaler would divide them by its scale.
        ValueError: if an optimizer of the parameters maximizes.
    """
    if scaled:
        raise RuntimeError(
            "Updates should become gradients without a gradient scaler, which would divide them by"
            " its scale. Found `precision='16-mixed'`: take 'bf16-mixed' or '32-true'."
        )
    if ascends:
        raise ValueError(
            "Argument `maximize` of the optimizer should be False for updates that become"
            f" gradients of a descent. Found True in `{ascends}`, which would subtract each update:"
            " leave it out."
        )
