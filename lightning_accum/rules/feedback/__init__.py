"""Learning signals: how an error of the outputs reaches each hidden neuron."""

from lightning_accum.rules.feedback.actor_critic import ActorCriticError
from lightning_accum.rules.feedback.base import Feedback
from lightning_accum.rules.feedback.fixed import DirectFeedback, RandomFeedback
from lightning_accum.rules.feedback.readout import LearnedFeedback, SymmetricFeedback

__all__ = [
    "ActorCriticError",
    "DirectFeedback",
    "Feedback",
    "LearnedFeedback",
    "RandomFeedback",
    "SymmetricFeedback",
]
