"""Learning rules, and the base class of rules."""

from lightning_accum.rules.base import Rule
from lightning_accum.rules.bcm import BCM
from lightning_accum.rules.competition import SoftHebb, WTAHebb
from lightning_accum.rules.delay import DelayAdjustedKernelSTDP, DelayAdjustedSTDP
from lightning_accum.rules.hebb import AntiHebb, Covariance, Hebb
from lightning_accum.rules.homeostasis import Homeostasis
from lightning_accum.rules.inhibitory import InhibitorySTDP
from lightning_accum.rules.kernel import KernelSTDP
from lightning_accum.rules.oja import Oja, Sanger
from lightning_accum.rules.reward import MSTDP, MSTDPET
from lightning_accum.rules.reward_modulated import reward_modulated
from lightning_accum.rules.stdp import STDP
from lightning_accum.rules.triplet import TripletSTDP
from lightning_accum.rules.weight_dependent import WeightDependentSTDP

__all__ = [
    "BCM",
    "MSTDP",
    "MSTDPET",
    "STDP",
    "AntiHebb",
    "Covariance",
    "DelayAdjustedKernelSTDP",
    "DelayAdjustedSTDP",
    "Hebb",
    "Homeostasis",
    "InhibitorySTDP",
    "KernelSTDP",
    "Oja",
    "Rule",
    "Sanger",
    "SoftHebb",
    "TripletSTDP",
    "WTAHebb",
    "WeightDependentSTDP",
    "reward_modulated",
]
