"""The check that a rule's ``tc_readout`` is the time constant of the model's readout."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping

from torch import nn

from lightning_accum._checks import quoted
from lightning_accum.cells.state import Hyperparameters
from lightning_accum.distributed.world import is_first
from lightning_accum.nn.leaky_integrator import LeakyIntegrator
from lightning_accum.rules.feedback import Feedback


def warn_of_other_readout(
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
    constants = [readout.tc_mem for readout in found.values()]
    others = {
        name: h.tc_readout
        for name, h in cells.items()
        if h.tc_readout is None or not any(math.isclose(h.tc_readout, tc) for tc in constants)
    }
    if not found or not others or not is_first():
        return
    names, mine = quoted(others, ", "), next(iter(others.values()))
    warnings.warn(
        f"Argument `tc_readout` should be, for {names}, the time constant of the readout"
        f" `{next(iter(found))}`, {constants[0]} ms. Found `tc_readout = {mine}`: give the rule"
        f" `tc_readout={constants[0]}`.",
        UserWarning,
        stacklevel=2,
    )
