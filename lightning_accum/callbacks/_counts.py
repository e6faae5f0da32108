"""Counts of a cell and its weights, from which checks find whether the cell learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor, nn

from lightning_accum.callbacks._rate_watch import Rate
from lightning_accum.cells.activity import Activity, Silence
from lightning_accum.cells.state import rates_in

By = Literal["callback", "module", "loop"]
"""Who applies updates: the callback, the module's own optimizer, or the user's own loop."""

Range = tuple[float | None, float | None]
"""A lower and an upper limit, each of which may be missing."""


@dataclass(frozen=True)
class Weights:
    """What is known of one parameter of a cell.

    Attributes:
        name: name of the parameter.
        applied: number of updates that were applied to it in the fit.
        dropped: number of those updates that were dropped because of NaN or Inf.
        pending: whether a change is pending.
        held: whether an optimizer that applies updates holds the parameter.
        rate: the factor with which it applies changes.
        moved: the share of weights that changed since the fit began; ``None`` if not known.
        distance: the norm of the difference from the weights when the fit began, divided by their
            norm; ``None`` if not known.
        corrected: whether distance and ratio leave out the first update, because weights that begin
            outside of a constraint are moved there by it, whatever the rule does.
        growth: the norm divided by the norm when the fit began; ``None`` if not known.
        grows: whether the norm grew in the latest epoch.
        finite: whether all weights are finite.
        began_finite: whether all weights were finite when the fit began.
        bounded: whether the weights have an upper limit, or a constraint.
        at_limits: the share of weights at a limit.
        began_beyond: the share of weights that were beyond a limit when the fit began.
        limits: the lower and the upper limit.
        largest: the largest absolute weight.
        dtype: the dtype of the weights.
        outside: the share of weights outside the range that the rule assumes.
        range: that range.
        ratio: the norm of an update divided by that of the weights, on average over those that were
            looked at; ``None`` if not known.
        still: the share of neurons whose weights have not changed since the fit began.
        shared: the share of the weights' variance that is the same for all neurons.
        undone: the number of updates that found the weights back at values that an earlier update
            had changed.
        replaced: the number of updates that found other weights than an earlier update had left.
        taken: the shares of updates that something took back before the next one; NaN if it did
            anything else to the weights.
        restored: whether they were back at their first values after an epoch that changed them.
        rests: whether the weights have not moved since the first updates, but for rounding.
        undone_by: the constraints that undo small changes of weights that rest.
        reset_by: the constraints that set the weights to what they were, whatever they become.
        overruled: which constraint a later one overrules; empty if all hold.
        beyond: how delays should be and are, if the connection cannot keep them; otherwise empty.
        dt: the step to which the connection rounds delays, in ms, if none has moved to another one
            since the fit began; otherwise ``None``.
    """

    name: str
    applied: int = 1
    dropped: int = 0
    zeroed: int = 0
    pending: bool = False
    held: bool = True
    rate: Rate = field(default_factory=Rate)
    moved: float | None = 1.0
    distance: float | None = 1.0
    growth: float | None = 1.0
    grows: bool = False
    finite: bool = True
    began_finite: bool = True
    bounded: bool = False
    at_limits: float = 0.0
    began_beyond: float = 0.0
    limits: Range = (None, None)
    largest: float = 1.0
    dtype: torch.dtype = torch.float32
    outside: float = 0.0
    range: Range = (None, None)
    ratio: float | None = 1.0
    corrected: bool = False
    still: float = 0.0
    shared: float = 0.0
    undone: int = 0
    replaced: int = 0
    taken: Sequence[float] = ()
    restored: bool = False
    reset_by: tuple[str, ...] = ()
    rests: bool = False
    undone_by: tuple[str, ...] = ()
    overruled: str = ""
    beyond: str = ""
    dt: float | None = None


@dataclass(frozen=True)
class Counts:
    """What is known of a cell after some batches of a fit.

    Attributes:
        cell: name of the cell.
        batches: number of training batches so far.
        windows: number of windows of the cell that were evaluated; ``None`` if nobody counts.
        unevaluated: number of recorded steps that no window has, in a loop of the user's own.
        late_batches: number of batches since the first check.
        late_windows: number of windows since the first check.
        idle: number of the latest batches in a row in which nothing was recorded.
        longest: number of steps of the longest window.
        activity: the activity on both sides of the cell.
        course: the spikes of the neurons and the number of values, in the first third of the
            windows that were looked at, the second and the last; empty if these are few.
        target: the rate in Hz at which the rule is to hold the neurons; ``None`` without a target.
        rectified: whether the rule assumes outputs that are not negative.
        silence: since when the neurons are silent; ``None`` if they are not, or always were.
        h: the hyperparameters of the cell.
        carry: whether traces pass from window to window.
        resized: number of windows before which traces were dropped, as the batch size had changed.
        by: who applies updates.
        zeros: the inputs of the rule that were 0 in all batches.
        ended: whether the fit is over.
        failed: whether an exception or Ctrl-C stopped it.
        why_nothing: why the cell may have recorded nothing, and the remedy.
        outside: its modules that are not part of the model that is trained, but have a state.
        rests: whether its modules are in evaluation mode while other cells learn.
        undefined: whether the membrane potential of its neurons holds NaN.
        why_unmoved: why the rule changes nothing, and the remedy, if the rule knows.
        weights: what is known of its parameters.
    """

    cell: str
    batches: int = 1
    windows: int | None = 1
    unevaluated: int = 0
    late_batches: int = 0
    late_windows: int = 0
    idle: int = 0
    longest: int = 2
    activity: Activity | None = None
    course: tuple[tuple[int, int], ...] = ()
    target: float | None = None
    rectified: bool = False
    silence: Silence | None = None
    h: Mapping[str, object] = field(default_factory=dict)
    carry: bool = False
    resized: int = 0
    by: By = "callback"
    zeros: Sequence[str] = ()
    ended: bool = False
    failed: bool = False
    why_nothing: str = ""
    outside: tuple[str, ...] = ()
    rests: bool = False
    undefined: bool = False
    why_unmoved: str = ""
    weights: tuple[Weights, ...] = ()

    @property
    def rates(self) -> dict[str, object]:
        """The hyperparameters that are learning rates."""
        return rates_in(self.h)


def is_undefined(neuron: nn.Module) -> bool:
    """Returns whether the potential of native neurons holds NaN; waits for the device."""
    potentials = (getattr(neuron, name, None) for name in ("voltage", "membrane"))
    return any(isinstance(v, Tensor) and bool(v.isnan().any()) for v in potentials)
