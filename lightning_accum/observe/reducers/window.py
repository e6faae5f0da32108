"""The steps of a window, in memory that is used again for the next window."""

from __future__ import annotations

import time
from typing import Any, final

import torch
from torch import Tensor

from lightning_accum._compat import is_traced, version
from lightning_accum.observe.reducers.base import allocate
from lightning_accum.sparse.events import Events, ExpectedEvents, SpikeRows, expect_events

_FIRST_CAPACITY = 16


def _now() -> int:
    return 0 if torch.compiler.is_compiling() else time.perf_counter_ns()


@final
class Window:
    """Holds the steps of a window; its memory doubles when it is full.

    A copy holds the same steps, and only them.

    Args:
        steps: ``[T, B, ...]`` the steps that it holds first; none if ``None``.

    Example:
        >>> import torch
        >>> window = Window()
        >>> window.begin(torch.zeros(2), torch.Size([2]), torch.bool)
        >>> window.append(torch.tensor([0.0, 1.0]))
        >>> window.steps
        tensor([[False,  True]])
    """

    def __init__(self, steps: Tensor | None = None) -> None:
        self.length = 0 if steps is None else steps.shape[0]
        self.shape = None if steps is None else steps.shape[1:]
        self.began = 0  # when the first step came, in ns of a clock; 0 if that is not known
        self.sequences = 0  # how many came, if steps came in sequences
        self.last_dtype: torch.dtype | None = None  # of the last observation, before conversion
        self.memory = steps
        self._rows = [] if steps is None else list(steps.unbind(0))
        self._spike_rows: SpikeRows | None = None  # of the memory, for spikes of one dtype
        self._expected: ExpectedEvents | None = None
        self._version: float | None = None  # of memory that belongs to someone else

    @property
    def steps(self) -> Tensor | None:
        """The steps ``[T, B, ...]``, as a view of the memory; ``None`` if there are none."""
        return None if self.memory is None or self.length == 0 else self.memory[: self.length]

    @property
    def only_step(self) -> Tensor | None:
        """The step ``[B, ...]`` if there is one, in windows of the same memory the same tensor."""
        return self._rows[0] if self.length == 1 and self._rows else None

    @property
    def events(self) -> Events | None:
        """The events of the window, if they are known.

        The module found those of one sequence, the kernel those of several steps that it wrote.
        """
        if self._expected is not None:
            return self._expected.events
        rows = self._spike_rows
        return None if rows is None or self.length < 2 else rows.events(self.length)

    def continues_with(self, step: Tensor) -> bool:
        """Returns whether a step is like the last one, and the memory has room for it."""
        return (
            self.length < len(self._rows)
            and step.dtype is self.last_dtype
            and step.shape == self.shape
            and (self.length > 0 or self._keeps(step))
        )

    def _keeps(self, step: Tensor) -> bool:
        """Returns whether the memory of the last window suits a window of such steps."""
        memory = self.memory
        if memory is None or memory.device != step.device or memory.is_inference():
            return False
        return memory.dtype is torch.bool or memory.dtype is step.dtype

    def begin(self, like: Tensor, shape: torch.Size, dtype: torch.dtype) -> None:
        """Prepares the memory for steps of a shape.

        Args:
            like: the first observation, on whose device the memory will be.
            shape: shape of a step, ``[B, ...]``.
            dtype: dtype in which steps are kept.
        """
        memory = self.memory
        if (
            memory is None
            or (memory.shape[1:], memory.dtype, memory.device) != (shape, dtype, like.device)
            or (memory.is_inference() and not torch.is_inference_mode_enabled())
        ):
            self._use(allocate((0, *shape), dtype, like.device))
        self.shape = shape

    def append(self, step: Tensor) -> None:
        """Adds one step ``[B, ...]``."""
        if self.length >= len(self._rows):
            self._grow(max(_FIRST_CAPACITY, 2 * self.length))
        if self.length == 0:
            self.began = _now()
        self._rows[self.length].copy_(step)
        self.length += 1

    def append_spikes(self, step: Tensor) -> bool:
        """Adds a step like one that was expected, if its kernel finds only 0 and 1 in it.

        Returns:
            Whether it was added; otherwise nothing has changed.
        """
        rows, length = self._spike_rows, self.length
        if rows is None or is_traced():
            return False
        count = rows.write(length, step)
        if count is None or count < 0:
            return False
        if length == 0:
            self.began = _now()
        self.length = length + 1
        return True

    def expect_spikes(self, dtype: torch.dtype) -> None:
        """Prepares for more steps of spikes like the last one.

        Args:
            dtype: the dtype of the steps.
        """
        rows = self._spike_rows
        if self.memory is not None and (rows is None or rows.dtype is not dtype):
            self._spike_rows = SpikeRows(self.memory, dtype)

    def extend(self, sequence: Tensor) -> None:
        """Adds the steps of a sequence ``[T, B, ...]``.

        Memory is made for exactly the first sequence, as the next windows are usually as long.
        """
        end = self.length + sequence.shape[0]
        if end > len(self._rows):
            doubled = max(_FIRST_CAPACITY, 2 * len(self._rows), end)
            self._grow(doubled if self.length else end)
        assert self.memory is not None
        if self.length == 0:
            self.began, self.sequences = _now(), 0
        self.sequences += 1
        self.memory[self.length : end].copy_(sequence)
        self._expected = None
        self.length = end

    def hold(self, sequence: Tensor) -> None:
        """Holds a sequence itself as the steps, instead of a copy of it.

        Args:
            sequence: ``[T, B, ...]`` that nobody changes.
        """
        self.memory, self._rows, self.began = sequence, [], _now()
        self._spike_rows, self.sequences = None, 1
        self.length, self.shape, self._version = (
            len(sequence),
            sequence.shape[1:],
            version(sequence),
        )

    @property
    def was_changed(self) -> bool:
        """Whether the sequence that is held has changed."""
        held = self.memory if self._version is not None else None
        return held is not None and version(held) != self._version

    def expect_events(self, sequence: Tensor) -> None:
        """Asks the module that uses the sequence next to leave the events that it finds.

        Args:
            sequence: the observation that is the whole window.
        """
        self._expected = expect_events(sequence)

    def widen(self, dtype: torch.dtype) -> None:
        """Converts the steps to a dtype that holds those of both dtypes."""
        memory = self.memory
        if self.length and memory is not None and memory.dtype != dtype:
            self._use(memory.to(torch.promote_types(memory.dtype, dtype)))

    def clear(self) -> None:
        """Drops the steps; the memory stays."""
        if self._version is not None:
            self.memory, self._version = None, None
        if self._spike_rows is not None:
            self._spike_rows.forget()
        self.length = 0
        self._expected = None

    def __reduce__(self) -> tuple[Any, ...]:
        return Window, (None if self.steps is None else self.steps.clone(),)

    def _grow(self, capacity: int) -> None:
        old = self.memory
        assert old is not None
        new = allocate((capacity, *old.shape[1:]), old.dtype, old.device)
        new[: self.length] = old[: self.length]
        self._use(new)

    def _use(self, memory: Tensor) -> None:
        self.memory, self._version, self._spike_rows = memory, None, None
        self._rows = list(memory.unbind(0))
