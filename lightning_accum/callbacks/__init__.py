"""Lightning callbacks; the only part of the package that imports lightning."""

from lightning_accum.callbacks._cell_host import CellHost
from lightning_accum.callbacks.cell_trainer import CellTrainerCallback
from lightning_accum.callbacks.cell_trainer_cli import CellTrainerCLI
from lightning_accum.callbacks.ddp_strategy import AverageBuffers, LocalDDPStrategy
from lightning_accum.callbacks.fabric import FabricCellTrainer
from lightning_accum.callbacks.online_probe import OnlineProbe
from lightning_accum.callbacks.pictures import UpdatePictures
from lightning_accum.callbacks.update_monitor import UpdateMonitor
from lightning_accum.health.watch import watching

__all__ = [
    "AverageBuffers",
    "CellTrainerCLI",
    "CellTrainerCallback",
    "FabricCellTrainer",
    "LocalDDPStrategy",
    "OnlineProbe",
    "UpdateMonitor",
    "UpdatePictures",
]

CellHost.watching = staticmethod(watching)  # callbacks know an observer, and not its checks
