"""All checks of a cell's learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lightning_accum.callbacks._activity_findings import (
    busy,
    fell_silent,
    nothing_recorded,
    silence,
    single_steps,
)
from lightning_accum.callbacks._counts import Counts, Weights
from lightning_accum.callbacks._finding import Finding
from lightning_accum.callbacks._weight_findings import (
    alike,
    growth,
    left_pending,
    never_applied,
    nonfinite,
    out_of_range,
    unmoved,
)


def findings(counts: Counts) -> list[Finding]:
    """Returns the findings on a cell; none if it learns well."""
    if counts.windows == 0:
        return list(nothing_recorded(counts))
    found = [
        finding for check in (silence, fell_silent, busy, single_steps) for finding in check(counts)
    ]
    checks: tuple[Callable[[Counts, Weights], Iterator[Finding]], ...]
    checks = (nonfinite, never_applied, unmoved, left_pending, growth, out_of_range, alike)
    for weights in counts.weights:
        found += [finding for check in checks for finding in check(counts, weights)]
    return found
