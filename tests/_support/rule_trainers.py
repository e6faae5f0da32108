"""Trainers of rules whose hyperparameters and options come together."""

from lightning_accum import RuleTrainer
from lightning_accum.engine.rule import OPTIONS


def trainer_of(kind, *args, **settings):
    """A trainer of a rule; each setting is an option of running, or a hyperparameter."""
    options = {name: settings.pop(name) for name in OPTIONS if name in settings}
    return RuleTrainer(kind(*args, **settings), **options)
