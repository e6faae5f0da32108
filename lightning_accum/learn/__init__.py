"""Cells, trainers and rules."""

from lightning_accum.learn.bcm import BCM
from lightning_accum.learn.cell import Cell, CellSpec
from lightning_accum.learn.competition import SoftHebb, WTAHebb
from lightning_accum.learn.delay import DelayAdjustedKernelSTDP, DelayAdjustedSTDP
from lightning_accum.learn.hebb import AntiHebb, Covariance, Hebb
from lightning_accum.learn.homeostasis import Homeostasis
from lightning_accum.learn.host import CellHost
from lightning_accum.learn.independent import (
    CellState,
    Hyperparameters,
    IndependentCellTrainer,
    Unit,
)
from lightning_accum.learn.kernel import KernelSTDP
from lightning_accum.learn.layer import Layer, Serial
from lightning_accum.learn.modulated import modulated
from lightning_accum.learn.oja import Oja, Sanger
from lightning_accum.learn.reward import MSTDP, MSTDPET
from lightning_accum.learn.rule import Rule
from lightning_accum.learn.signal import Signal
from lightning_accum.learn.stdp import STDP
from lightning_accum.learn.terms import Addend, Term
from lightning_accum.learn.trainer import CellTrainer
from lightning_accum.learn.triplet import TripletSTDP
from lightning_accum.learn.window import Window

__all__ = [
    "BCM",
    "MSTDP",
    "MSTDPET",
    "STDP",
    "Addend",
    "AntiHebb",
    "Cell",
    "CellHost",
    "CellSpec",
    "CellState",
    "CellTrainer",
    "Covariance",
    "DelayAdjustedKernelSTDP",
    "DelayAdjustedSTDP",
    "Hebb",
    "Homeostasis",
    "Hyperparameters",
    "IndependentCellTrainer",
    "KernelSTDP",
    "Layer",
    "Oja",
    "Rule",
    "Sanger",
    "Serial",
    "Signal",
    "SoftHebb",
    "Term",
    "TripletSTDP",
    "Unit",
    "WTAHebb",
    "Window",
    "modulated",
]
