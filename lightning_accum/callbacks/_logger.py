"""The logger of what callbacks print when a fit ends.

It is set up as Lightning's own logger is, and is not a child of it: programs often raise the level
of Lightning's to be rid of its remarks, and would miss what was learned.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("lightning_accum.callbacks")
logger.setLevel(logging.INFO)
if not logging.getLogger().hasHandlers():
    logger.addHandler(logging.StreamHandler())
    logger.propagate = False
