"""Networks that learn by local rules while they see images, without labels or an optimizer."""

from __future__ import annotations

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

    def training_step(self, batch: tuple[Tensor], batch_idx: int) -> None:
        self(batch[0])

    def configure_optimizers(self) -> None:
        return None


def see_once(network: Local, rule: Rule, cell: CellSpec, images: Tensor, batch_size: int) -> None:
    """Shows each image once to a network, one of whose connections learns."""
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[CellTrainerCallback(rule, {"layer": cell}, log=False)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(network, DataLoader(TensorDataset(images), batch_size, shuffle=True))
