"""The logger of the summary that callbacks print when a fit ends.

It is set up as Lightning's own logger is, but is not a child of it: programs often raise the level
of Lightning's logger to silence its remarks, which would silence the summary too.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("lightning_accum.callbacks")
logger.setLevel(logging.INFO)
if not logging.getLogger().hasHandlers():
    logger.addHandler(logging.StreamHandler())
    logger.propagate = False
