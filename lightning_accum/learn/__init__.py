"""Cells, trainers and rules."""

from lightning_accum.learn.cell import Cell, CellSpec
from lightning_accum.learn.engine import Term
from lightning_accum.learn.hebb import Hebb
from lightning_accum.learn.host import CellHost
from lightning_accum.learn.independent import (
    CellState,
    Hyperparameters,
    IndependentCellTrainer,
    Unit,
)
from lightning_accum.learn.layer import Layer, Serial
from lightning_accum.learn.reward import MSTDP
from lightning_accum.learn.rule import Rule, Window
from lightning_accum.learn.signal import Signal
from lightning_accum.learn.stdp import STDP
from lightning_accum.learn.trainer import CellTrainer
from lightning_accum.learn.triplet import TripletSTDP

__all__ = [
    "MSTDP",
    "STDP",
    "Cell",
    "CellHost",
    "CellSpec",
    "CellState",
    "CellTrainer",
    "Hebb",
    "Hyperparameters",
    "IndependentCellTrainer",
    "Layer",
    "Rule",
    "Serial",
    "Signal",
    "Term",
    "TripletSTDP",
    "Unit",
    "Window",
]
