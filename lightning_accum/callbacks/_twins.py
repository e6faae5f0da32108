"""The check that each callback has a trainer of its own."""

from __future__ import annotations

from collections.abc import Mapping

from lightning_accum.callbacks._host import CellHost


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
