"""The check that a rule filters eligibility as the model's readout filters its input."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence

from torch import nn

from lightning_accum.cells.state import Hyperparameters
from lightning_accum.distributed.world import is_first
from lightning_accum.functional.traces import decay_factor
from lightning_accum.nn.leaky_integrator import LeakyIntegrator
from lightning_accum.rules.feedback import Feedback


def warn_of_other_memory(
    cells: Mapping[str, Hyperparameters], feedback: Feedback, model: nn.Module
) -> None:
    """Warns if no readout of the model has the time constant of the rule's cells.

    Readouts are the :class:`~lightning_accum.nn.LeakyIntegrator` modules with as many outputs as
    the error; without any, nothing is known.

    Args:
        cells: by name, the hyperparameters of each cell.
        feedback: the feedback, which knows the number of outputs.
        model: the model.
    """
    weight = feedback.matrix()
    if weight is None:
        return
    found = {
        path: module
        for path, module in model.named_modules()
        if isinstance(module, LeakyIntegrator) and module.size == (len(weight),)
    }
    decays = [each.decay for each in found.values()]
    others = {name: h for name, h in cells.items() if not _is_among(decays, h)}
    if not found or not others or not is_first():
        return
    path, readout = next(iter(found.items()))
    names, h = ", ".join(f"`{name}`" for name in others), next(iter(others.values()))
    warnings.warn(
        f"Argument `tc_readout` should be, for {names}, the time constant of the readout"
        f" `{path}`, {readout.tc_mem} ms in steps of {readout.dt} ms. Found"
        f" `tc_readout = {h.tc_readout}` in steps of {h.dt} ms: give the rule"
        f" `tc_readout={readout.tc_mem}`.",
        UserWarning,
        stacklevel=2,
    )


def _is_among(decays: Sequence[float], h: Hyperparameters) -> bool:
    """Returns whether the decay of a rule's filter is one of some."""
    mine = 0.0 if h.tc_readout is None else decay_factor(h.tc_readout, h.dt)
    return any(math.isclose(decay, mine) for decay in decays)
