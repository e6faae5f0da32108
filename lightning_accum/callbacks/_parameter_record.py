"""Compares a parameter with what it was when a fit began."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from lightning_accum.callbacks._counts import Range, Weights
from lightning_accum.callbacks._overruled_constraints import overruled
from lightning_accum.callbacks._rate_watch import Rate
from lightning_accum.callbacks._shares import (
    share,
    share_in_common,
    share_of,
    share_still,
)
from lightning_accum.callbacks._weight_samples import (
    correlation,
    taken_back,
    times_back,
)
from lightning_accum.cells.undoing import resetting, undoing
from lightning_accum.distributed.shards import local
from lightning_accum.functional.numbers import (
    Fingerprint,
    fingerprint,
    relative_distance,
    rounding,
    same_fingerprints,
    sample_of,
)
from lightning_accum.nn.linear import delays_beyond, step_of_delays
from lightning_accum.updates import Updater

_STILL = 1.002  # times the norm of an epoch before: smaller growth does not count
_LATER = 4  # updates after the first that were looked at
_FEW = 16  # fewer weights may correlate by chance
_UNLIKE = 0.5  # correlation of weights that have little in common


class ParameterRecord:
    """Remembers a parameter, and compares it with what it becomes.

    It keeps an evenly spaced sample of a large parameter. For all weights it keeps the norm and the
    sum, at least one of which changes with any weight.

    Args:
        updater: the updater that applies changes to the parameter.
        name: name of the parameter.
        late: whether the fit began before this record.
    """

    def __init__(self, updater: Updater, name: str, late: bool = False) -> None:
        self.name = name
        self._late, self._moved = late, False
        counts = ({}, {}, {}) if late else (updater.applied, updater.zeroed, updater.skipped)
        self._applied, self._zeroed, self._dropped = (each.get(name, 0) for each in counts)
        value = self._value(updater)
        self._shape = value.shape
        self._sample = sample_of(value).clone()
        self._began = fingerprint(value)
        self._before = self._latest = self._began[0]  # norms at the ends of two epochs
        # Before and after some of the updates.
        self._steps: list[tuple[Fingerprint, Fingerprint]] = []
        self._step: Fingerprint | None = None  # before the one that is being applied
        self._from: Tensor | None = None  # the sample before that
        self._ratios: list[Tensor] = []  # of these updates to the weights
        self._first: Tensor | None = None  # the sample that the first one left
        self._since_first: list[Tensor] = []  # the distances of the next samples from it
        self._end: Fingerprint | None = None  # of the latest epoch, until the next update
        # At the ends of epochs, and before the next updates.
        self._ends: list[tuple[Fingerprint, Fingerprint]] = []
        self._left: Tensor | None = None  # the sample that an update left, until the next update
        self._since: Tensor | None = None  # that before the update, if one left it
        self._same: list[Tensor] = []  # whether those before the next updates were the same
        self._kept: list[Tensor] = []  # and its correlations with them
        self._taken: list[Tensor] = []  # the shares of these updates that were taken back

    @property
    def kept(self) -> int:
        """The number of weights that are kept."""
        return self._sample.numel()

    def compare(self, updater: Updater) -> None:
        """Compares the weights before an update with those that an earlier one left.

        It does not compare weights that have a gradient, because an optimizer may train them too.
        """
        left, since, self._left, self._since = self._left, self._since, None, None
        now = sample_of(self._value(updater))
        if left is None or left.shape != now.shape or updater.target(self.name).grad is not None:
            return
        self._same.append((left == now).all())
        if left.numel() >= _FEW:
            self._kept.append(correlation(left, now))
            if since is not None:
                self._taken.append(taken_back(since, left, now))

    def update_begins(self, updater: Updater) -> None:
        """Notes the norm and the sum before an update."""
        value = self._value(updater)
        self._step, self._from = fingerprint(value), sample_of(value).clone()
        if self._end is not None:
            self._ends.append((self._end, self._step))
            self._end = None

    def update_ended(self, updater: Updater) -> None:
        """Notes the norm, the sum and a sample after that update."""
        if self._step is not None and self._from is not None:
            value = self._value(updater)
            self._steps.append((self._step, fingerprint(value)))
            self._left = sample_of(value).clone()
            if self._first is None:
                self._first = self._left
            elif self._first.shape == self._left.shape == self._from.shape:
                sides = self._from, self._left
                self._since_first += [relative_distance(each, self._first) for each in sides]
            if self._left.shape == self._from.shape:
                self._since = self._from
                self._ratios.append(relative_distance(self._left, self._from))
            self._step = self._from = None

    def epoch_ended(self, updater: Updater) -> None:
        """Notes the norm, the sum and a sample, to compare them with those of the next epoch."""
        value = self._value(updater)
        self._end, self._left, self._since = fingerprint(value), sample_of(value).clone(), None
        self._before, self._latest = self._latest, self._end[0]

    def weights(
        self, updater: Updater, rates: Mapping[int, Rate], assumed: Range = (None, None)
    ) -> Weights:
        """Returns what is known of the parameter now; waits for the device.

        Args:
            updater: the updater that applies changes to the parameter.
            rates: the rate of every parameter in the optimizers that apply updates, by ``id``.
            assumed: the range that the rule assumes of the weights.
        """
        name, value = self.name, self._value(updater)
        key = id(updater.target(name))
        now = fingerprint(value)
        norm, total = (float(each) for each in now)
        began, began_total = (float(each) for each in self._began)
        moved: float | None = None
        distance: float | None = None
        dt: float | None = None
        still, ratios, since = 0.0, self._ratios, self._sample
        corrected = bool(self._ratios[1:] and updater.constraints_of(name))
        if corrected and self._first is not None:
            ratios, since = ratios[1:], self._first
        if not self._late and value.shape == self._shape:
            sample = sample_of(value)
            distance = _mean([relative_distance(sample, since)])
            still = share_still(sample == self._sample, value.shape)
            moved = share_of(sample != self._sample)
            if not moved and (norm, total) != (began, began_total):
                moved = 1 / value.numel()
            self._moved = moved > 0
            dt = step_of_delays(updater.parent, name, self._sample, sample)
        lower, upper = updater.limits(name)
        rests = self._rests(sample_of(value))
        return Weights(
            name=name,
            applied=updater.applied.get(name, 0) - self._applied,
            dropped=updater.skipped.get(name, 0) - self._dropped,
            zeroed=updater.zeroed.get(name, 0) - self._zeroed,
            pending=not getattr(updater, name).empty,
            held=key in rates,
            rate=rates.get(key, Rate()),
            moved=moved,
            distance=distance,
            growth=norm / began if began else None,
            grows=norm > _STILL * float(self._before),
            finite=math.isfinite(norm),
            began_finite=math.isfinite(began),
            bounded=upper is not None or bool(updater.constraints_of(name)),
            at_limits=share(value, torch.le, lower, torch.ge, upper),
            began_beyond=share(self._sample, torch.lt, lower, torch.gt, upper),
            limits=(lower, upper),
            largest=float(value.abs().max()) if value.numel() else 0.0,
            dtype=value.dtype,
            outside=share(value, torch.lt, assumed[0], torch.gt, assumed[1]),
            range=assumed,
            overruled=overruled(updater.constraints_of(name), value),
            reset_by=resetting(updater.constraints_of(name), value) if rests or moved == 0 else (),
            undone_by=undoing(updater.constraints_of(name), value) if rests else (),
            rests=rests,
            beyond=delays_beyond(updater.parent, name),
            dt=dt,
            ratio=_mean(ratios),
            corrected=corrected,
            still=still,
            shared=share_in_common(value, updater.parent),
            # Weights that nothing else writes to may come back, too, in cycles of a learned rule.
            undone=0 if self._same and all(self._same) else times_back(self._steps),
            replaced=sum(float(kept) < _UNLIKE for kept in self._kept),
            taken=[float(share) for share in self._taken],
            restored=any(
                not same_fingerprints(end, self._began) and same_fingerprints(after, self._began)
                for end, after in (*self._ends, *(() if self._end is None else ((self._end, now),)))
            ),
        )

    def _rests(self, sample: Tensor) -> bool:
        """Returns whether the first update left the weights as they are now, but for rounding.

        Args:
            sample: the sample of the weights now.
        """
        if self._first is None or self._first.shape != sample.shape:
            return False
        since = [*self._since_first, relative_distance(sample, self._first)]
        most = rounding(sample.dtype)
        return len(since) > 2 * _LATER and all(float(each) <= most for each in since)

    def is_back(self, updater: Updater) -> bool:
        """Returns whether weights that the fit had moved are as they were when it began.

        By then a strategy may have moved them to another device.

        Args:
            updater: the updater that applied changes to the parameter.
        """
        now = self._value(updater)
        return (
            self._moved
            and now.shape == self._shape
            and torch.equal(sample_of(now).cpu(), self._sample.cpu())
        )

    def _value(self, updater: Updater) -> Tensor:
        """Returns the parameter, or this process's shard of it."""
        return local(updater.target(self.name).detach())


def _mean(values: Sequence[Tensor]) -> float | None:
    """Returns the mean of those values that are finite, ``None`` if none is."""
    finite = [number for number in map(float, values) if math.isfinite(number)]
    return sum(finite) / len(finite) if finite else None
