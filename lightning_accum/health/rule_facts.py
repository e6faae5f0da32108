"""What messages and advice have to know of a rule, read from its hyperparameters and its states."""

from collections.abc import Mapping
from typing import Any

import torch

from lightning_accum._checks import is_number
from lightning_accum.cells.recorded_signals import follows_gradient
from lightning_accum.cells.trainer import CellTrainer
from lightning_accum.engine.rule import Rule, rates_in
from lightning_accum.functional.kernels import changes

_STEPS = 100  # between spikes of which a kernel that learns says something
_TINY = 1e-12
_OF_ZERO = {
    "pseudo-derivative": "the pseudo-derivative of its neurons was 0 at every potential that"
    " was looked at: give the rule the neuron's own `threshold=`, and by `membrane=` its"
    " potential before the reset, or a wider `surrogate=`.",
    "feedback": "all weights of its feedback were 0, so that no error reached the neurons: if"
    " they are those of the readout, give it other first weights, or train it too; or take"
    " `RandomFeedback`.",
}


def rule_of(trainer: CellTrainer | None) -> Rule | None:
    """Returns the rule of a trainer that has one."""
    rule = getattr(trainer, "rule", None)
    return rule if isinstance(rule, Rule) else None


def follows_error(trainer: CellTrainer) -> bool:
    """Returns whether changes follow an error, by which the whole network should learn."""
    rule = rule_of(trainer)
    return rule is not None and (follows_gradient(rule) or "feedback" in vars(rule))


def held_rate(h: Mapping[str, Any]) -> float | None:
    """Returns the rate, in Hz, at which a rule holds neurons, if it has a target."""
    return h.get("target_rate") if h.get("regularization", 1.0) else None


def why_zero(name: str) -> str:
    """Returns what it means that ``name``, by which changes are multiplied, was always 0."""
    return _OF_ZERO.get(name) or (
        f"`{name}` of the rule was always 0: look at how it is computed, and give it to the"
        " call that evaluates the steps, which may be your own in `training_step`."
    )


def has_both_signs(h: Mapping[str, Any]) -> bool:
    """Returns whether changes should potentiate and depress, by a cell's hyperparameters."""
    rates = [rate for rate in rates_in(h).values() if is_number(rate)]
    return any(rate > 0 for rate in rates) and any(rate < 0 for rate in rates)


def weak_kernel(h: Mapping[str, Any], device: torch.device) -> str:
    """Returns how small a kernel is if it is next to nothing, and the remedy; otherwise empty."""
    if not callable(kernel := h.get("kernel")):
        return ""
    dt = h["dt"]
    apart = dt * torch.arange(-_STEPS, _STEPS + 1.0, device=device)
    largest = float(changes(kernel, apart).detach().abs().max())
    if not largest < _TINY:
        return ""
    return (
        f"Its kernel is at most {largest:.0e} for spikes that are up to {_STEPS} steps of {dt:g}"
        " ms apart: it gets differences in ms, not in seconds or in steps, and returns the change"
        " of the weight, so look at its time constant and its factor."
    )
