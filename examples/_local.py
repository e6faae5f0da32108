"""Networks that learn by local rules while they see images, without an optimizer."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from lightning_accum import CellSpec, Rule
from lightning_accum.callbacks import CellTrainerCallback


class Local(pl.LightningModule):
    """A network without an optimizer: rules learn while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: tuple[Tensor, ...], batch_idx: int) -> Any:
        self(batch[0])

    def configure_optimizers(self) -> None:
        return None


def see(
    network: pl.LightningModule,
    rule: Rule,
    cell: CellSpec,
    *data: Tensor,
    batch_size: int,
    epochs: int = 1,
    shuffle: bool = True,
    **options: Any,
) -> int:
    """Shows each sample once an epoch to a network, one of whose connections learns.

    Args:
        network: what sees the samples.
        rule: by which the connection learns.
        cell: the connection and its neurons.
        *data: images, or images and labels.
        batch_size: of the samples.
        epochs: how often each sample is shown.
        shuffle: whether in a random order.
        **options: of the callback, and of running the rule.

    Returns:
        The number of updates.
    """
    trainer = pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        callbacks=[CellTrainerCallback(rule, {"layer": cell}, log=False, **options)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(network, DataLoader(TensorDataset(*data), batch_size, shuffle))
    return trainer.global_step
