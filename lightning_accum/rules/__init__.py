"""Learning rules, and the base class of rules."""

from lightning_accum.engine.feedback import Feedback
from lightning_accum.engine.neuromodulator import Neuromodulator
from lightning_accum.engine.rule import Rule
from lightning_accum.rules.actor_critic import ActorCriticError
from lightning_accum.rules.bcm import BCM
from lightning_accum.rules.clopath import Clopath
from lightning_accum.rules.covariance import Covariance
from lightning_accum.rules.delay_adjusted_stdp import DelayAdjustedKernelSTDP, DelayAdjustedSTDP
from lightning_accum.rules.delta import DeltaRule
from lightning_accum.rules.differentiable import change_of
from lightning_accum.rules.eprop import EProp
from lightning_accum.rules.fast_weights import FastWeights
from lightning_accum.rules.feedback import (
    DirectFeedback,
    LearnedFeedback,
    RandomFeedback,
    SymmetricFeedback,
)
from lightning_accum.rules.hebb import AntiHebb, Hebb
from lightning_accum.rules.homeostasis import Homeostasis
from lightning_accum.rules.inhibitory import InhibitorySTDP
from lightning_accum.rules.kernel import KernelSTDP
from lightning_accum.rules.mstdp import MSTDP, MSTDPET
from lightning_accum.rules.oja import Oja
from lightning_accum.rules.online_simulation import learn_online, why_step_by_step
from lightning_accum.rules.ottt import OTTT
from lightning_accum.rules.parameter_estimation import RateFit, fit_rates
from lightning_accum.rules.reward_modulation import reward_modulated
from lightning_accum.rules.sanger import Sanger
from lightning_accum.rules.soft_hebb import SoftHebb
from lightning_accum.rules.stdp import STDP
from lightning_accum.rules.stllr import STLLR
from lightning_accum.rules.triplet import TripletSTDP
from lightning_accum.rules.weight_dependent import WeightDependentSTDP
from lightning_accum.rules.wta_hebb import WTAHebb

__all__ = [
    "BCM",
    "MSTDP",
    "MSTDPET",
    "OTTT",
    "STDP",
    "STLLR",
    "ActorCriticError",
    "AntiHebb",
    "Clopath",
    "Covariance",
    "DelayAdjustedKernelSTDP",
    "DelayAdjustedSTDP",
    "DeltaRule",
    "DirectFeedback",
    "EProp",
    "FastWeights",
    "Feedback",
    "Hebb",
    "Homeostasis",
    "InhibitorySTDP",
    "KernelSTDP",
    "LearnedFeedback",
    "Neuromodulator",
    "Oja",
    "RandomFeedback",
    "RateFit",
    "Rule",
    "Sanger",
    "SoftHebb",
    "SymmetricFeedback",
    "TripletSTDP",
    "WTAHebb",
    "WeightDependentSTDP",
    "change_of",
    "fit_rates",
    "learn_online",
    "reward_modulated",
    "why_step_by_step",
]
