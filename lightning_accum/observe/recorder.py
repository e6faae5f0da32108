"""The window recorder, which keeps everything since the last call of the rule, and its memory."""

from typing import Any, final

import torch
from torch import Tensor, is_inference_mode_enabled

from lightning_accum._checked_state import check_that
from lightning_accum._checks import check_tensors, check_time_dim
from lightning_accum._compat.torch_internals import version
from lightning_accum.observe.reducer import Reducer, allocate
from lightning_accum.sparse.events import Events, SpikeRows, count_spikes

_FIRST_CAPACITY = 16  # steps


@final
class StepBuffer:
    """Holds the steps of a window in memory that doubles when it is full, and serves again."""

    def __init__(self, steps: Tensor | None = None) -> None:
        self.length = 0 if steps is None else steps.shape[0]
        self.shape = None if steps is None else steps.shape[1:]
        self.memory = steps
        self._rows = [] if steps is None else list(steps.unbind(0))
        self.spike_rows: SpikeRows | None = None  # of the memory, for spikes of one dtype
        self._whole = 0  # how many steps such spikes have, if they are a sequence
        self.held: float | None = None  # the version of memory that belongs to someone else

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
        """The events of the window, if its kernel found them."""
        rows, length = self.spike_rows, self.length
        if rows is None or length < 2:
            return None
        if self._whole:
            return rows.events(1) if length == self._whole else None
        return rows.events(length)

    def prepare(self, like: Tensor, shape: torch.Size, spikes: bool) -> None:
        """Makes ready for an observation with steps of a shape, with memory or a wider dtype."""
        memory = self.memory
        locked = memory is not None and memory.is_inference() and not is_inference_mode_enabled()
        if self.length == 0:
            dtype, self.shape = torch.bool if spikes else like.dtype, shape
            if (
                memory is None
                or (memory.shape[1:], memory.dtype, memory.device) != (shape, dtype, like.device)
                or locked
            ):
                self._use(allocate((0, *shape), dtype, like.device))
        elif memory is not None and (locked or (not spikes and memory.dtype != like.dtype)):
            wider = memory.dtype if spikes else torch.promote_types(memory.dtype, like.dtype)
            if locked or wider != memory.dtype:
                self._use(memory.to(wider, copy=True))

    def append(self, step: Tensor) -> Tensor:
        """Adds one step ``[B, ...]``, and returns it as it is kept."""
        if self.length >= len(self._rows):
            self._grow(max(_FIRST_CAPACITY, 2 * self.length))
        self.length += 1
        return self._rows[self.length - 1].copy_(step)

    def append_spikes(self, spikes: Tensor) -> bool:
        """Adds a step or sequence as expected if it is 0 or 1, and returns whether it did."""
        rows, length = self.spike_rows, self.length
        if rows is None or (length and self._whole):
            return False
        count = rows.write(length, spikes)
        if count is None or count < 0:
            return False
        self.length = length + (self._whole or 1)
        return True

    def expect_spikes(self, dtype: torch.dtype, whole: bool = False) -> None:
        """Prepares for more steps of spikes, or sequences that fill the memory as a whole."""
        rows, memory = self.spike_rows, self.memory
        if memory is not None and (rows is None or rows.dtype is not dtype):
            self.spike_rows = SpikeRows(memory.unsqueeze(0) if whole else memory, dtype)
            self._whole = len(memory) if whole else 0

    def extend(self, sequence: Tensor) -> bool:
        """Adds a sequence ``[T, B, ...]``, and returns whether it filled memory that was there."""
        # exactly enough memory for the first sequence: the next windows are usually as long
        end, capacity = self.length + len(sequence), len(self._rows)
        if end > capacity:
            self._grow(max(_FIRST_CAPACITY, 2 * capacity, end) if self.length else end)
        assert self.memory is not None
        self.memory[self.length : end].copy_(sequence)
        self.length = end
        return end == capacity > 0

    def hold(self, sequence: Tensor) -> None:
        """Holds a sequence ``[T, B, ...]`` itself as the steps, instead of a copy of it."""
        self.memory, self._rows, self.spike_rows = sequence, [], None
        self.length, self.shape = len(sequence), sequence.shape[1:]
        self.held = version(sequence)

    def is_intact(self) -> bool:
        """Returns whether values that are held stayed as they were."""
        return self.held is None or self.memory is None or version(self.memory) == self.held

    def clear(self) -> None:
        """Drops the steps; the memory stays."""
        if self.held is not None:
            self.memory = self.held = None
        if self.spike_rows is not None:
            self.spike_rows.forget()
        self.length = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return StepBuffer, (None if self.steps is None else self.steps.clone(),)

    def _grow(self, capacity: int) -> None:
        """Takes more memory for the steps."""
        old = self.memory
        assert old is not None
        new = allocate((capacity, *old.shape[1:]), old.dtype, old.device)
        new[: self.length] = old[: self.length]
        self._use(new)

    def _use(self, memory: Tensor) -> None:
        """Keeps steps in other memory from now on."""
        self.memory, self._rows = memory, list(memory.unbind(0))
        self.spike_rows = self.held = None


@final
class SpikeCheck:
    """Checks that activity is 0 or 1, and not complex; the label says where it is seen."""

    # On an accelerator nothing waits for the device: other values are noted there, until `confirm`
    # looks.

    def __init__(self, label: str, checks: bool = True) -> None:
        self.label, self.checks = label, checks
        self._others: dict[torch.device, Tensor] = {}  # whether there were any

    def look(self, activity: Tensor) -> None:
        """Raises an error if activity is complex or, on the CPU, not 0 or 1."""
        if not self.checks:
            return
        if activity.is_complex():
            raise TypeError(
                f"Activity of a rule on spikes should be real. Found {activity.dtype} {self.label}:"
                " record its magnitude or its real part."
            )
        if activity.is_cpu and count_spikes(activity) is None:
            found = activity[(activity != 0) & (activity != 1)][0].item()
            raise ValueError(self._message(found))

    def look_later(self, activity: Tensor, spikes: Tensor) -> None:
        """Notes whether activity differs from the spikes that were recorded of it."""
        if not self.checks or activity.dtype is torch.bool:
            return
        others, known = (activity != spikes).any(), self._others.get(activity.device)
        self._others[activity.device] = others if known is None else known | others

    def confirm(self) -> None:
        """Checks everything that was noted, and waits for the device."""
        noted, self._others = self._others, {}
        if any(bool(others) for others in noted.values()):
            raise ValueError(self._message("other values"))

    def _message(self, found: object) -> str:
        """Returns what is wrong with a value that is not 0 or 1, and how to mend it."""
        how = (
            "look for NaN in the data, in the weights, and in what else the module is given."
            if found != found
            else "is a neuron's output missing in between? If input is meant to be real-valued,"
            " such as that of `ShortTermPlasticity`, pass `graded_input=True` to the trainer: if it"
            " learns from an error or a gradient, values count, and otherwise every value but 0 is"
            " a spike; or use a rate-based rule."
        )
        return f"Activity of a rule on spikes should be 0 or 1. Found {found} {self.label}: {how}"


@final
class WindowRecorder(Reducer):
    """Records every observation of a window ``[T, B, ...]``.

    The memory grows by doubling and stays from window to window. Spikes are kept as one byte each:
    any non-zero value is one spike.

    Args:
        spikes: whether the activity is spikes, which are kept as booleans; other activity is kept
            in its own dtype.
        time_dim: ``None`` if the module is called once per step, with ``[B, ...]``; ``0`` if it is
            called once per sequence, with ``[T, B, ...]``.
        validate: whether to check that spikes are 0 or 1: on the CPU at once, on an accelerator
            when :meth:`confirm` is called.
        label: where the activity is seen, for messages.
        sample_dims: number of dimensions of one sample. A step that has only these gets a batch of
            one. By default the first dimension is the batch.
        holds: whether the first sequence of a window may be held itself, instead of a copy, because
            its module makes new memory in each call.

    Example:
        >>> import torch
        >>> recorder = WindowRecorder(spikes=True)
        >>> for step in torch.eye(3):
        ...     recorder(step.unsqueeze(0))
        >>> recorder.window().shape, recorder.window().dtype
        (torch.Size([3, 1, 3]), torch.bool)
        >>> recorder.clear()
        >>> recorder.length
        0
    """

    def __init__(
        self,
        spikes: bool = False,
        time_dim: int | None = None,
        *,
        validate: bool = True,
        label: str = "in a recorder",
        sample_dims: int | None = None,
        holds: bool = False,
    ) -> None:
        super().__init__()
        check_time_dim(time_dim)
        self.spikes, self.time_dim = spikes, time_dim
        self.label, self.sample_dims, self.holds = label, sample_dims, holds
        self._check = SpikeCheck(label, spikes and validate)

    @property
    def _state(self) -> dict[str, Tensor | None]:
        return {"buffer": self._buffer.steps}

    @_state.setter
    def _state(self, state: dict[str, Tensor | None]) -> None:
        self._buffer = StepBuffer(state.get("buffer"))

    @property
    def length(self) -> int:
        """The number of steps of the window."""
        return self._buffer.length

    # ------------------------------------------------------------------ recording
    def forward(self, observation: Tensor) -> None:
        """Records one step ``[B, ...]``, or one sequence ``[T, B, ...]``.

        Raises:
            TypeError: if it is not a tensor, or spikes are complex.
            ValueError: if the shape changes within a window, or spikes are not 0 or 1.
        """
        if not isinstance(observation, Tensor):
            check_tensors(observation=observation)
        buffer, check = self._buffer, self._check
        if buffer.spike_rows is not None and buffer.append_spikes(observation):
            return
        if self.time_dim == 0:
            self._record_sequence(observation)
            return
        step = observation.detach() if observation.requires_grad else observation
        if step.ndim == self.sample_dims:
            step = step.unsqueeze(0)
        self._look(step, step.shape)
        buffer.prepare(step, step.shape, self.spikes)
        row = buffer.append(step)
        if not step.is_cpu:
            check.look_later(step, row)
        elif check.checks and step.dtype is not torch.bool:
            buffer.expect_spikes(step.dtype)

    def _record_sequence(self, sequence: Tensor) -> None:
        """Records a sequence of steps."""
        buffer, check, values = self._buffer, self._check, sequence.detach()
        self._look(values, values.shape[1:])
        if buffer.held is not None:
            self.window()  # raises if it has changed
        first = buffer.length == 0
        if first and self.holds and not self.spikes and not sequence.is_inference() and len(values):
            buffer.hold(values)  # itself, instead of a copy
            return
        buffer.prepare(sequence, sequence.shape[1:], self.spikes)
        again = buffer.extend(values)
        if not sequence.is_cpu and buffer.steps is not None:
            check.look_later(values, buffer.steps[buffer.length - len(sequence) :])
        if first and again and check.checks and sequence.dtype is not torch.bool:
            buffer.expect_spikes(sequence.dtype, whole=True)

    def _look(self, observation: Tensor, shape: torch.Size) -> None:
        """Raises an error if a shape or values cannot be recorded; boolean values always can."""
        buffer = self._buffer
        if buffer.length and shape != buffer.shape:
            raise ValueError(
                f"Activity should keep its shape within a window. Found {tuple(shape)} after"
                f" {buffer.length} steps of {tuple(buffer.shape or ())}: call the trainer, and"
                " clear it, between batches."
            )
        if observation.ndim < (1 if self.time_dim is None else 2):
            raise ValueError(
                "Activity should be `[B, ...]`, or `[T, B, ...]` with `time_dim=0`. Found shape"
                f" {tuple(observation.shape)}, `time_dim = {self.time_dim}`."
            )
        if observation.dtype is not torch.bool:
            self._check.look(observation)

    # ------------------------------------------------------------------ what was recorded
    def window(self) -> Tensor | None:
        """Returns the steps ``[T, B, ...]`` since the last :meth:`clear`; valid until the next one.

        Raises:
            ValueError: if values have changed that are not copied.
        """
        if not self._buffer.is_intact():
            raise ValueError(
                f"Values {self.label} should stay as they are until the rule is called. Found that"
                " they were changed in place: change a copy, as `value.clone()`."
            )
        return self._buffer.steps

    def only_step(self) -> Tensor | None:
        """Returns the step ``[B, ...]`` of a window of one step, ``None`` for other windows."""
        return self._buffer.only_step

    def events(self) -> Events | None:
        """Returns the events of the window, if its kernel found them."""
        return self._buffer.events

    def peek(self) -> Tensor | None:
        """Returns the latest step."""
        window = self.window()
        return None if window is None else window[-1]

    def dump(self) -> Tensor | None:
        """Returns a copy of the window."""
        window = self.window()
        return None if window is None else window.clone()

    def confirm(self) -> None:
        """Checks everything that was recorded and is not checked yet, and waits for the device."""
        self._check.confirm()

    def clear(self, **kwargs: Any) -> None:
        """Begins a new window; its memory stays."""
        self._buffer.clear()

    drop_window = clear  # there is no other state

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not the window of such a recorder."""
        super().check_extra_state(state)
        window = state["buffer"]
        if window is not None:
            fits = window.ndim > 1 and (window.dtype == torch.bool or not self.spikes)
            should = f"{'booleans' if self.spikes else 'values'} `[T, B, ...]` as `buffer`"
            check_that(fits, "`WindowRecorder`", should, window)
