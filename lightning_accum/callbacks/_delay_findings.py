"""The checks of trained delays, each a pure function of a cell's counts."""

from __future__ import annotations

from collections.abc import Iterator

from lightning_accum._checks import quoted
from lightning_accum.callbacks._counts import Counts, Weights
from lightning_accum.callbacks._finding import Finding, number


def beyond(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds delays that the connection cannot keep."""
    if w.beyond:
        text = f"The delays of cell `{c.cell}` {w.beyond}"
        yield Finding(c.cell, f"beyond {w.name}", text, True)


def same_steps(c: Counts, w: Weights) -> Iterator[Finding]:
    """Finds delays that a whole fit has not moved to another step."""
    if c.ended and w.moved and w.dt is not None:
        text = (
            f"The fit changed the delays `{c.cell}.{w.name}` in {number(w.applied, 'update')}, and"
            f" none of them to another step of `dt = {w.dt:g}`, to which the connection rounds"
            f" them, so that it works as before: raise {quoted(c.rates)}, or train for"
            " longer."
        )
        yield Finding(c.cell, f"same steps {w.name}", text, False)
