"""Descriptions of a host's cells for TensorBoard: hyperparameters and the layout of charts."""

from __future__ import annotations

from re import escape
from types import SimpleNamespace
from typing import Any

from lightning_accum.callbacks._host import CellHost

# Tags of the scalars in each chart of a cell, by the chart's name. All lines of a run have one
# color, so that a chart has one kind of value.
_CHARTS_OF_PARAMS = {
    "ratio": "updates/{cell}/{param}/ratio",
    "potentiation": "updates/{cell}/{param}/pos_norm",
    "depression": "updates/{cell}/{param}/neg_norm",
    "limits": "updates/{cell}/{param}/at_(lower|upper)",
}
_CHARTS_OF_ACTIVITY = {
    "firing rate": "activity/{cell}/firing_rate",
    "silent neurons": "activity/{cell}/silent_share",
}
_NONE = SimpleNamespace()


def layout(host: CellHost, prefix: str) -> dict[str, dict[str, list[Any]]]:
    """Returns the custom scalars of TensorBoard: by cell and chart, patterns of tags.

    Args:
        host: the host of the cells.
        prefix: text before the name of each cell in the tags.
    """
    charts: dict[str, dict[str, list[Any]]] = {}
    updaters = host.updaters
    for cell, _ in host.trainer.named_cells:
        params = updaters[cell].names if cell in updaters else ()
        shown = escape(prefix + cell)
        patterns = {
            chart: sorted({tag.format(cell=shown, param=escape(name)) for name in params})
            for chart, tag in _CHARTS_OF_PARAMS.items()
        }
        patterns |= {chart: [tag.format(cell=shown)] for chart, tag in _CHARTS_OF_ACTIVITY.items()}
        charts[prefix + cell] = {
            chart: ["Multiline", tags] for chart, tags in patterns.items() if tags
        }
    return charts


def hyperparameters(host: CellHost, prefix: str) -> dict[str, Any]:
    """Returns the class and the hyperparameters of the rule for each cell, by cell and name.

    Args:
        host: the host of the cells.
        prefix: text before the name of each cell.
    """
    trainer = host.trainer
    if host.cells is None:
        states = ((name, state) for name, (_, state) in trainer.named_cells)
        cells = {name: vars(getattr(state, "hyperparameters", _NONE)) for name, state in states}
    else:  # they may not be bound yet, or be bound to another model
        defaults = vars(getattr(trainer, "defaults", _NONE))
        cells = {name: {**defaults, **spec.overrides} for name, spec in host.cells.items()}
    found: dict[str, Any] = {}
    for cell, settings in cells.items():
        found[f"{prefix}{cell}/rule"] = type(trainer).__name__
        for name, value in settings.items():
            if value is not None:
                plain = isinstance(value, (bool, int, float, str))
                found[f"{prefix}{cell}/{name}"] = value if plain else str(value)
    return found
