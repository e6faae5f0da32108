"""Lightning callbacks; the only part of the package that imports lightning."""

from lightning_accum.callbacks.cell_trainer import CellTrainerCallback
from lightning_accum.callbacks.fabric import FabricCellTrainer
from lightning_accum.callbacks.strategy import LocalDDPStrategy

__all__ = ["CellTrainerCallback", "FabricCellTrainer", "LocalDDPStrategy"]
