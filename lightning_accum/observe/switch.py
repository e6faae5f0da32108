"""The switch that pauses monitors."""

from __future__ import annotations

from typing import final


@final
class Switch:
    """Says whether monitors record; a trainer pauses all monitors that share one at once."""

    def __init__(self, on: bool = True) -> None:
        self.on = on
