"""Programs times hosts that fail on the present package."""

from __future__ import annotations

NOT_YET: set[str] = set()
