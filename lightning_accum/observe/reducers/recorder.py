"""The window recorder, which keeps everything since the last call of the rule."""

from __future__ import annotations

from typing import Any, final

import torch
from torch import Tensor

from lightning_accum._checks import check_tensors
from lightning_accum._state import check_that
from lightning_accum.observe.reducers.base import Reducer
from lightning_accum.observe.reducers.spike_check import SpikeCheck
from lightning_accum.observe.reducers.window import Window
from lightning_accum.sparse.events import Events


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
        dt: time between two steps, in ms.
        validate: whether to check that spikes are 0 or 1. On the CPU, sequences are checked at
            once, and so are the first steps of a window until a spike has been seen; other steps
            are checked 16 together, or when :meth:`window` is called. On an accelerator they are
            checked when :meth:`confirm` is called.
        label: where the activity is seen, for messages.
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
        dt: float = 1.0,
        validate: bool = True,
        label: str = "in a recorder",
        holds: bool = False,
    ) -> None:
        super().__init__(dt)
        if time_dim is not None and not (isinstance(time_dim, int) and time_dim == 0):
            raise ValueError(
                "Argument `time_dim` should be None (a call per step, `[B, ...]`) or 0 (a call per"
                f" sequence, `[T, B, ...]`). Found `{time_dim = }`."
            )
        self.spikes = spikes
        self.time_dim = time_dim
        self.label = label
        self.holds = holds and not spikes
        self._check = SpikeCheck(label) if spikes and validate else None

    @property
    def _state(self) -> dict[str, Tensor | None]:
        return {"buffer": self._window.steps}

    @_state.setter
    def _state(self, state: dict[str, Tensor | None]) -> None:
        self._window = Window(state.get("buffer"))

    @property
    def length(self) -> int:
        """The number of steps of the window."""
        return self._window.length

    @property
    def began(self) -> int:
        """When the first step of the window came, in ns of a clock; 0 if that is not known."""
        return self._window.began

    @property
    def sequences(self) -> int:
        """How many sequences make up a window that has any steps, with ``time_dim=0``."""
        return self._window.sequences

    # ------------------------------------------------------------------ recording
    def forward(self, observation: Tensor) -> None:
        """Records one step ``[B, ...]``, or one sequence ``[T, B, ...]``.

        Raises:
            TypeError: if it is not a tensor, or spikes are complex.
            ValueError: if the shape changes within a window, or spikes are not 0 or 1.
        """
        window, check = self._window, self._check
        if check is not None and check.at_once and window.append_spikes(observation):
            return
        if (
            isinstance(observation, Tensor)
            and window.continues_with(observation)
            and (check is None or window.length > 1 or check.may_wait(observation))
        ):
            step = observation.detach() if observation.requires_grad else observation
            if check is not None:
                check.add(step)
            window.append(step)
            return
        check_tensors(observation=observation)
        if self.time_dim is None:
            self._record_step(observation.detach())
        else:
            self._record_sequence(observation)

    def _record_step(self, step: Tensor) -> None:
        self._check_shape(step, step.shape)
        if self._check is not None:
            self._check.take_step(step)
        self._prepare(step, step.shape)
        self._window.append(step)
        if self._check is not None and self._check.at_once:
            self._window.expect_spikes(step.dtype)

    def _record_sequence(self, sequence: Tensor) -> None:
        shape = sequence.shape[1:]
        self._check_shape(sequence, shape)
        if self._check is not None:
            self._check.take_sequence(sequence.detach())
        if self.holds and not self.length and len(sequence) and not sequence.is_inference():
            self._window.hold(sequence.detach())
            self._window.last_dtype = sequence.dtype
            return
        self._prepare(sequence, shape)
        whole = self.length == 0 and self.spikes and sequence.dtype == torch.bool
        self._window.extend(sequence.detach())
        if whole:
            self._window.expect_events(sequence)

    def _check_shape(self, observation: Tensor, shape: torch.Size) -> None:
        """Raises a ``ValueError`` if the batch is missing, or the shape changes in the window."""
        window = self._window
        if window.length and shape != window.shape:
            raise ValueError(
                f"Activity should keep its shape within a window. Found {tuple(shape)} after"
                f" {window.length} steps of {tuple(window.shape or ())}: call the trainer, and"
                " clear it, between batches."
            )
        if observation.ndim < (1 if self.time_dim is None else 2):
            raise ValueError(
                "Activity should be `[B, ...]`, or `[T, B, ...]` with `time_dim=0`. Found shape"
                f" {tuple(observation.shape)}, `time_dim = {self.time_dim}`."
            )

    def _prepare(self, observation: Tensor, shape: torch.Size) -> None:
        """Begins a window at its first observation, and widens it for one of another dtype."""
        window = self._window
        if window.length == 0:
            window.begin(observation, shape, torch.bool if self.spikes else observation.dtype)
        elif not self.spikes:
            window.widen(observation.dtype)
        window.last_dtype = observation.dtype

    # ------------------------------------------------------------------ what was recorded
    def window(self) -> Tensor | None:
        """Returns the steps ``[T, B, ...]`` since the last :meth:`clear`; valid until the next one.

        Raises:
            ValueError: if spikes are not 0 or 1, or if values have changed that are not copied; a
                window of one step is checked with later ones.
        """
        if self._window.was_changed:
            raise ValueError(
                f"Values {self.label} should stay as they are until the rule is called. Found that"
                " they were changed in place: change a copy, as `value.clone()`."
            )
        if self._check is not None and self.length > 1:
            self._check.check_kept()
        return self._window.steps

    def only_step(self) -> Tensor | None:
        """Returns the step ``[B, ...]`` of a window of one step, ``None`` for other windows.

        It is the same tensor in every window for which the same memory is used.
        """
        return self._window.only_step

    def events(self) -> Events | None:
        """Returns the events of the window, if it is one sequence and its module found them."""
        return self._window.events

    def peek(self) -> Tensor | None:
        """Returns the latest step."""
        window = self.window()
        return None if window is None else window[-1]

    def dump(self) -> Tensor | None:
        """Returns a copy of the window."""
        window = self.window()
        return None if window is None else window.clone()

    def confirm(self) -> None:
        """Checks everything that was recorded and is not checked yet, and waits for the device.

        Raises:
            ValueError: if spikes are not 0 or 1.
        """
        if self._check is not None:
            self._check.confirm()

    def drop_window(self) -> None:
        """Begins a new window; its memory stays."""
        self.clear()

    def clear(self, **kwargs: Any) -> None:
        """Begins a new window; its memory stays."""
        check, window = self._check, self._window
        if check is not None and (window.length > 1 or check.failed):
            check.drop()
        window.clear()

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not the window of such a recorder."""
        super().check_extra_state(state)
        window = state["buffer"]
        if window is not None:
            fits = window.ndim > 1 and (window.dtype == torch.bool or not self.spikes)
            should = f"{'booleans' if self.spikes else 'values'} `[T, B, ...]` as `buffer`"
            check_that(fits, "`WindowRecorder`", should, window)

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Takes a window from a state dict.

        Raises:
            RuntimeError: if it is not one; then nothing has changed.
        """
        super().set_extra_state(state)
        if self._check is not None:
            self._check.drop()
