"""Cells, layers that hold them, and the trainers that watch and update them."""

from lightning_accum.cells.cell import Cell, CellSpec
from lightning_accum.cells.layer import Layer, Serial
from lightning_accum.cells.network_checkpoints import load_shares, save_share
from lightning_accum.cells.populations import Populations
from lightning_accum.cells.rule_trainer import RuleTrainer
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.distributed.world import own_neurons

__all__ = [
    "Cell",
    "CellSpec",
    "CellTrainer",
    "Layer",
    "Populations",
    "RuleTrainer",
    "Serial",
    "load_shares",
    "own_neurons",
    "save_share",
]
