"""Cells, layers that hold them, and the trainers that watch and update them."""

from lightning_accum.cells.cell import Cell, CellSpec
from lightning_accum.cells.independent import IndependentCellTrainer, RegisteredCell
from lightning_accum.cells.layer import Layer, Serial
from lightning_accum.cells.observer import CellObserver
from lightning_accum.cells.state import CellState, Hyperparameters
from lightning_accum.cells.tally import Activity, Tally
from lightning_accum.cells.trainer import CellTrainer

__all__ = [
    "Activity",
    "Cell",
    "CellObserver",
    "CellSpec",
    "CellState",
    "CellTrainer",
    "Hyperparameters",
    "IndependentCellTrainer",
    "Layer",
    "RegisteredCell",
    "Serial",
    "Tally",
]
