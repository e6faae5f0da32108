"""The window recorder: what was seen since the last call of the rule."""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from lightning_accum._checks import check_tensors
from lightning_accum._state import check_that
from lightning_accum.observe.reducers.base import Reducer, room
from lightning_accum.observe.reducers.evidence import Evidence
from lightning_accum.sparse.events import Events
from lightning_accum.sparse.handover import Finding, expect_events

_FIRST_ROOM = 16


class WindowRecorder(Reducer):
    """Records every observation of a window, and hands it out as ``[T, B, ...]``.

    The memory grows by doubling and stays from window to window. Spikes are kept as one byte each:
    any non-zero value is one spike.

    Args:
        spikes: whether the activity is spikes, kept as booleans; else it is kept as it comes.
        time_dim: ``None`` where a module is called once per step, with ``[B, ...]``; ``0`` where it
            is called once per sequence, with ``[T, B, ...]``.
        dt: time between two steps, in ms.
        validate: whether to look that spikes are 0 or 1: at every step on the CPU, up to the first
            spike at once, then at 16 together, or when :meth:`window` is called; on an accelerator
            when :meth:`confirm` is.
        label: where the activity is seen, for messages.

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

    # Nothing here is a parameter, a buffer or a module, and to look for them takes longer than all
    # else that a step does.
    __setattr__ = object.__setattr__  # type: ignore[assignment]

    def __init__(
        self,
        spikes: bool = False,
        time_dim: int | None = None,
        dt: float = 1.0,
        validate: bool = True,
        label: str = "in a recorder",
    ) -> None:
        super().__init__(dt)
        if time_dim is not None and not (isinstance(time_dim, int) and time_dim == 0):
            raise ValueError(
                "Argument `time_dim` should be None (a call per step, `[B, ...]`) or 0 (a call per"
                f" sequence, `[T, B, ...]`). Found `{time_dim = }`."
            )
        self.spikes = spikes
        self.time_dim = time_dim
        self.validate = validate
        self.length = 0
        self.began = 0  # ns of a clock, when the first step of the window came; 0 for not known
        self._state = {"buffer": None}
        self._rows: list[Tensor] = []  # the buffer's steps, as views: the hot path is one copy
        self._shape: torch.Size | None = None
        self._evidence = Evidence(label)
        self._looks = False  # whether what comes is to be looked at
        self._dtype: torch.dtype | None = None  # of what was looked at
        self._finding: Finding | None = None  # of a window that is a single sequence

    def forward(self, observation: Tensor) -> None:
        """Records one step, or one sequence.

        Raises:
            TypeError: if it is not a tensor.
            ValueError: if the shape changes within a window, or spikes are not 0 or 1.
        """
        if not isinstance(observation, Tensor):
            check_tensors(observation=observation)
        if self.time_dim is None:
            # the hot path
            at = self.length
            fits = observation.shape == self._shape and observation.dtype is self._dtype
            if fits and 1 < at < len(self._rows):
                own = observation.detach() if observation.requires_grad else observation
                if self._looks:
                    self._evidence.add(own)
                self._rows[at].copy_(own)
                self.length = at + 1
                return
        own = observation.detach()
        shape = own.shape if self.time_dim is None else own.shape[1:]
        if self.length == 0 or shape != self._shape:
            self._check(own, shape)
        self._examine(own)
        if self.length == 0:
            self._begin(own, shape)
        if self.time_dim is None:
            if self.length == len(self._rows):
                self._grow(self.length + 1)
            self._rows[self.length].copy_(own)
            self.length += 1
        else:
            end = self.length + observation.shape[0]
            if end > len(self._rows):
                self._grow(end)
            buffer = self._state["buffer"]
            assert buffer is not None
            buffer[self.length : end].copy_(own)
            whole = self.length == 0 and self.spikes and observation.dtype == torch.bool
            self._finding = expect_events(observation) if whole else None
            self.length = end

    def window(self) -> Tensor | None:
        """``[T, B, ...]`` recorded since the last :meth:`clear`; valid until the next one.

        Raises:
            ValueError: if spikes are not 0 or 1; a single step is looked at with the next ones.
        """
        if self._looks and self.length > 1:
            self._evidence.look()
        return self._window()

    def _window(self) -> Tensor | None:
        buffer = self._state["buffer"]
        return None if buffer is None or self.length == 0 else buffer[: self.length]

    def events(self) -> Events | None:
        """The window's events by step, sample and neuron, if they were found when it was used."""
        return None if self._finding is None else self._finding.events

    def peek(self) -> Tensor | None:
        """The latest step."""
        window = self.window()
        return None if window is None else window[-1]

    def dump(self) -> Tensor | None:
        """A copy of the window."""
        window = self.window()
        return None if window is None else window.clone()

    def confirm(self) -> None:
        """Looks at all that was recorded and not looked at yet, and waits for the device.

        Raises:
            ValueError: if spikes are not 0 or 1.
        """
        self._evidence.confirm()

    def clear(self, **kwargs: Any) -> None:
        """Begins a new window; its memory stays."""
        if self.length > 1 or self._evidence.refused:
            self._evidence.drop()
        self.length = 0
        self._finding = None

    def _check(self, observation: Tensor, shape: torch.Size) -> None:
        """Raises a ``ValueError`` for a step of another shape than those before, or of none."""
        if self.length:
            raise ValueError(
                f"Activity should keep its shape within a window. Found {tuple(shape)} after"
                f" {self.length} steps of {tuple(self._shape or ())}: call the trainer, and clear"
                " it, between batches."
            )
        if observation.ndim < (1 if self.time_dim is None else 2):
            raise ValueError(
                f"Activity should be `[B, ...]`, or `[T, B, ...]` with `time_dim=0`. Found shape"
                f" {tuple(observation.shape)}, `time_dim = {self.time_dim}`."
            )

    def _begin(self, observation: Tensor, shape: torch.Size) -> None:
        """Makes room for a window of steps of this shape."""
        self.began = 0 if torch.compiler.is_compiling() else time.perf_counter_ns()
        dtype = torch.bool if self.spikes else observation.dtype
        buffer = self._state["buffer"]
        if (
            buffer is None
            or (buffer.shape[1:], buffer.dtype, buffer.device) != (shape, dtype, observation.device)
            or (buffer.is_inference() and not torch.is_inference_mode_enabled())
        ):
            self._state["buffer"] = room((0, *shape), dtype, observation.device)
            self._rows = []
        self._shape = shape

    def _examine(self, observation: Tensor) -> None:
        """Looks at spikes, or keeps them to be looked at; other activity may widen the room."""
        buffer = self._state["buffer"]
        if self.spikes:
            self._looks = self.validate and observation.dtype != torch.bool
            if self._looks:
                self._evidence.take(observation, whole=self.time_dim is not None)
        elif self.length and buffer is not None and buffer.dtype != observation.dtype:
            wide = buffer.to(torch.promote_types(buffer.dtype, observation.dtype))
            self._state["buffer"], self._rows = wide, list(wide.unbind(0))
        self._dtype = observation.dtype

    def _grow(self, needed: int) -> None:
        old = self._state["buffer"]
        assert old is not None
        steps = max(_FIRST_ROOM, 2 * old.shape[0], needed)
        if self.time_dim == 0 and self.length == 0:
            steps = needed  # sequences are as long as the ones before, as a rule
        new = room((steps, *old.shape[1:]), old.dtype, old.device)
        new[: self.length] = old[: self.length]
        self._state["buffer"] = new
        self._rows = list(new.unbind(0))

    # ------------------------------------------------------------------ survival
    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_rows": [], "_finding": None, "_state": self.get_extra_state()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._remake()

    def _remake(self) -> None:
        buffer = self._state["buffer"]
        self._finding, self.began = None, 0
        self._evidence.drop()
        self.length = 0 if buffer is None else buffer.shape[0]
        self._shape = None if buffer is None else buffer.shape[1:]
        self._rows = [] if buffer is None else list(buffer.unbind(0))

    def _apply(self, fn: Any, recurse: bool = True) -> WindowRecorder:
        self._state = self.get_extra_state()
        super()._apply(fn, recurse)
        self._remake()
        return self

    def get_extra_state(self) -> dict[str, Any]:
        """The window."""
        window = self._window()
        return {"buffer": None if window is None else window.clone()}

    def check_extra_state(self, state: Any) -> None:
        """Raises a ``RuntimeError`` if this is not a window of this recorder's kind."""
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
        self._remake()
