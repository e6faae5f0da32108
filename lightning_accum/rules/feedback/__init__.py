"""Learning signals: how an error of the outputs reaches each hidden neuron."""

from lightning_accum.rules.feedback.base import Feedback
from lightning_accum.rules.feedback.fixed import DirectFeedback, RandomFeedback
from lightning_accum.rules.feedback.readout import LearnedFeedback, SymmetricFeedback

__all__ = [
    "DirectFeedback",
    "Feedback",
    "LearnedFeedback",
    "RandomFeedback",
    "SymmetricFeedback",
]
