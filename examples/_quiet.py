"""Mutes what Lightning says of small programs: its tips, and its advice on workers and logging."""

from __future__ import annotations

import logging
import warnings

# Options of a Trainer that only trains.
SILENT = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "enable_progress_bar": False,
}


def quiet() -> None:
    """Lets Lightning report errors only."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
