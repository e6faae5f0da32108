"""The environment in which `make docs` runs the code of the pages.

It defines no names, so that a block can be pasted into an empty file. Each block gets an empty
folder, and Lightning's messages, which would mix with what the page prints, are turned off.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import warnings

# Lightning reads these as the defaults of `Trainer`; the tutorials' kernels inherit them.
TRAINER = {
    "PL_TRAINER_ACCELERATOR": "cpu",
    "PL_TRAINER_ENABLE_PROGRESS_BAR": "False",
    "PL_TRAINER_ENABLE_MODEL_SUMMARY": "False",
}
os.environ.update(TRAINER)

_before: list[tuple[str, tempfile.TemporaryDirectory[str]]] = []


def enter() -> None:
    """Begins a block."""
    import lightning_accum.callbacks  # noqa: F401  # and Lightning, which sets its loggers' level

    for name in ("lightning.pytorch", "lightning.fabric", "lightning_accum.callbacks"):
        logging.getLogger(name).setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    folder = tempfile.TemporaryDirectory()
    _before.append((os.getcwd(), folder))
    os.chdir(folder.name)
    sys.path.insert(0, folder.name)  # as of a program in it


def leave() -> None:
    """Ends it."""
    before, folder = _before.pop()
    os.chdir(before)
    sys.path.remove(folder.name)
    for name, module in [*sys.modules.items()]:  # what the page had its readers save
        if (getattr(module, "__file__", None) or "").startswith(folder.name):
            del sys.modules[name]
    folder.cleanup()
