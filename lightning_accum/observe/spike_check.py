"""The check that recorded activity is spikes, several steps at a time."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from lightning_accum.observe.reducer import allocate
from lightning_accum.sparse.kernel_library import has_kernel
from lightning_accum.sparse.search import count_spikes

# How many steps are checked together, if they have at most so many elements in all.
_STEPS, _ELEMENTS = 16, 1 << 18


@final
class SpikeCheck:
    """Checks that activity is 0 or 1, and not complex; the label says where it is seen."""

    # On the CPU, the compiled kernel checks each step; without it, steps are kept and checked 16
    # together. On an accelerator nothing waits for the device: a flag there is set if there is any
    # other value, until `confirm` reads it. Booleans are not checked.

    def __init__(self, label: str) -> None:
        self.label = label
        self.failed = False  # whether the kept steps are known to be something else than spikes
        self.at_once = False  # whether no step is kept to be checked later
        self._memory: Tensor | None = None
        self._rows: tuple[Tensor, ...] = ()
        self.kept = 0  # how many steps are kept to be checked later
        self.seen_spike = False
        self._device_flag: Tensor | None = None

    def add(self, step: Tensor) -> None:
        """Keeps one step of the shape, dtype and device of the last one, to be checked later."""
        if step.dtype is torch.bool:
            return
        if self.kept == len(self._rows):
            self.check_kept()
            if not self._rows:
                self._count(step)
                return
        self._rows[self.kept].copy_(step)
        self.kept += 1

    def may_wait(self, step: Tensor) -> bool:
        """Returns whether a step may be kept to be checked later: booleans, or after a spike."""
        return self.seen_spike or step.dtype is torch.bool

    def take_step(self, step: Tensor) -> None:
        """Keeps one step of any shape, to be checked later; at once until a spike has been seen."""
        if step.dtype is torch.bool:
            return
        self._check_real(step)
        if not self.seen_spike:
            self.seen_spike = self._count(step) > 0
        self._make_room(step)
        self.add(step)

    def take_sequence(self, sequence: Tensor) -> None:
        """Checks a sequence ``[T, B, ...]`` at once."""
        self._check_real(sequence)
        self._count(sequence)

    def check_kept(self) -> None:
        """Checks the kept steps, without waiting for a device; again until they are dropped."""
        if self.kept and self._memory is not None:
            self.failed = True
            self._count(self._memory[: self.kept])
            self.failed = False
        self.kept = 0

    def confirm(self) -> None:
        """Checks everything that was taken in, and waits for the device."""
        self.check_kept()
        flag, self._device_flag = self._device_flag, None
        if flag is not None and bool(flag):
            raise ValueError(self._message("other values"))

    def drop(self) -> None:
        """Forgets the kept steps."""
        self.kept = 0
        self.failed = False

    def __reduce__(self) -> tuple[Any, ...]:
        return SpikeCheck, (self.label,)  # a copy starts without kept steps

    def _make_room(self, like: Tensor) -> None:
        """Allocates memory for steps like this one, after a check of those kept in other memory."""
        known, wanted = self._memory, (like.shape, like.dtype, like.device)
        if known is None or (known.shape[1:], known.dtype, known.device) != wanted:
            self.check_kept()
            steps = min(_STEPS, _ELEMENTS // max(1, like.numel()))
            self.at_once = steps < 2 or has_kernel(like.device, like.dtype)
            steps = 0 if self.at_once else steps
            self._memory = allocate((steps, *like.shape), like.dtype, like.device)
            self._rows = self._memory.unbind(0)

    def _count(self, activity: Tensor) -> int:
        """Checks activity and returns the number of spikes; 1 if only a device knows it."""
        if activity.is_cpu:
            count = count_spikes(activity)
            if count is None:
                found = activity[(activity != 0) & (activity != 1)][0].item()
                raise ValueError(self._message(found))
            return count
        other = ((activity != 0) & (activity != 1)).any()
        known = self._device_flag
        same = known is not None and known.device == other.device
        self._device_flag = known | other if known is not None and same else other
        return 1

    def _check_real(self, activity: Tensor) -> None:
        """Raises a ``TypeError`` if activity is complex."""
        if activity.is_complex():
            raise TypeError(
                f"Activity of a rule on spikes should be real. Found {activity.dtype} {self.label}:"
                " record its magnitude or its real part."
            )

    def _message(self, found: object) -> str:
        """Returns what is wrong with a value that is not 0 or 1, and how to mend it."""
        how = (
            "look for NaN in the data, in the weights, and in what else the module is given."
            if found != found
            else "is a neuron's output missing in between? If input is meant to be real-valued,"
            " such as that of `ShortTermPlasticity`, pass `graded_input=True` to the rule: if it"
            " learns from an error or a gradient, values count, and otherwise every value but 0 is"
            " a spike; or use a rate-based rule."
        )
        return f"Activity of a rule on spikes should be 0 or 1. Found {found} {self.label}: {how}"
