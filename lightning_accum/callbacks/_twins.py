"""The checks that no two callbacks train the same cells with the same rule."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

from lightning_accum.callbacks._host import CellHost
from lightning_accum.cells.state import same_settings


def check_own_trainer(name: str, host: CellHost, others: Mapping[str, CellHost]) -> None:
    """Raises a ``ValueError`` if another callback has the same CellTrainer.

    Args:
        name: the name of the callback.
        host: the host of its cells.
        others: by name, the hosts of the other callbacks.
    """
    for other, each in others.items():
        if each.trainer is host.trainer:
            raise ValueError(
                "Argument `cell_trainer` should be another object for each CellTrainerCallback."
                f" Found the same {type(host.trainer).__name__} in `{name}` and `{other}`: make a"
                " rule for each, or one callback with all `cells`."
            )


def warn_of_twins(name: str, host: CellHost, others: Mapping[str, CellHost]) -> None:
    """Warns of cells that another callback trains too, by the same rule with equal settings.

    Args:
        name: the name of the callback.
        host: the host of its cells.
        others: by name, the hosts of the other callbacks; those that are bound are compared.
    """
    for other, each in others.items():
        if not each.bound or type(each.trainer) is not type(host.trainer):
            continue
        ours, theirs = host.trainer.cell_states, each.trainer.cell_states
        both = [
            name
            for name, (cell, _) in host.trainer.named_cells
            for known, (its, _) in each.trainer.named_cells
            if its == cell and name in ours and known in theirs
            if same_settings(ours[name], theirs[known])
        ]
        if both:
            warnings.warn(
                f"Cells {both} should be trained once by `{type(host.trainer).__name__}` with the"
                f" same settings. Found them in the callbacks `{other}` and `{name}`, so that they"
                " learn twice as fast: leave one out, or raise the rates.",
                UserWarning,
                stacklevel=2,
            )
