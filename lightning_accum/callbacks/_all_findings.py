"""Runs all checks of one cell, and the check of the parameters that no cell trains."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from torch import nn
from torch.nn.parameter import is_lazy

from lightning_accum.callbacks._activity_findings import (
    busy,
    fell_silent,
    negative,
    not_in_model,
    nothing_recorded,
    off_target,
    recorded_no_more,
    resized,
    single_steps,
)
from lightning_accum.callbacks._counts import Counts, Weights
from lightning_accum.callbacks._delay_findings import beyond, same_steps
from lightning_accum.callbacks._finding import Finding
from lightning_accum.callbacks._undone_findings import undone
from lightning_accum.callbacks._weight_findings import (
    alike,
    began_beyond,
    growth,
    hardly_moved,
    left_pending,
    never_applied,
    never_won,
    nonfinite,
    out_of_range,
    overruled,
    unmoved,
)
from lightning_accum.distributed.shards import local


def findings(counts: Counts) -> list[Finding]:
    """Returns the findings on a cell; none if it learns well."""
    if counts.windows == 0:
        return list(nothing_recorded(counts))
    quiet = recorded_no_more, fell_silent
    checks_of_activity = not_in_model, *quiet, busy, negative, single_steps, resized, off_target
    found = [finding for check in checks_of_activity for finding in check(counts)]
    checks: tuple[Callable[[Counts, Weights], Iterator[Finding]], ...]
    checks = (
        *(nonfinite, never_applied, unmoved, hardly_moved, undone),
        *(left_pending, growth, began_beyond, out_of_range, overruled),
        *(beyond, same_steps, alike, never_won),
    )
    for weights in counts.weights:
        found += [finding for check in checks for finding in check(counts, weights)]
    return found


def undefined_parameters(model: nn.Module, known: Collection[int]) -> Iterator[Finding]:
    """Finds parameters of a model that hold NaN; waits for the device.

    Args:
        model: the model.
        known: the ``id`` of every parameter that is not looked at.
    """
    for name, param in model.named_parameters():
        if id(param) in known or is_lazy(param) or param.is_meta:
            continue
        if bool(local(param.detach()).isnan().any()):
            text = (
                f"The parameters of the model should be numbers. Found NaN in `{name}`, which no"
                " cell trains: look at how it is initialized or loaded, and at what changes it."
            )
            yield Finding("", f"undefined {name}", text, True)
