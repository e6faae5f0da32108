"""Feedback, which turns an error into a learning signal of each neuron, and that signal."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_shape, check_tensors
from lightning_accum._compat.torch_internals import hook_count
from lightning_accum.engine.rule_inputs import Recording


class Feedback(nn.Module, ABC):
    r"""Turns the error of the outputs into a learning signal of each neuron.

    .. math:: L_j(t) = \sum_k B_{kj}\, \delta_k(t)
    """

    def bind_model(self, model: nn.Module) -> None:
        """Looks up what the feedback needs of a model."""

    def followed(self) -> Iterator[nn.Parameter]:
        """Yields parameters from whose changes the feedback learns, so that these should change."""
        return iter(())

    def follow(self) -> None:
        """Learns, if the feedback does; a rule calls it after it has used the feedback."""

    @abstractmethod
    def matrix(self) -> Tensor | None:
        """Returns the feedback weights ``[classes, neurons]``, or ``None`` for the error itself."""

    def forward(self, error: Tensor) -> Tensor:
        """Returns the learning signal.

        Args:
            error: ``[..., classes]``, the gradient of the loss by the outputs.

        Returns:
            ``[..., neurons]``, in the wider dtype of the error and the weights.

        Raises:
            ValueError: if the number of classes is not that of the feedback weights.
        """
        check_tensors(error=error)
        weight = self.matrix()
        if weight is None:
            return error.detach()
        should = f"shape [..., {len(weight)}], an entry for each output of `{type(self).__name__}`"
        check_shape(error.shape[-1:] == (len(weight),), "error", error, should)
        dtype = torch.promote_types(error.dtype, weight.dtype)
        return error.detach().to(dtype) @ weight.to(error.device, dtype)


@dataclass(frozen=True)
class LearningSignal:
    """The learning signal of each neuron, computed from the error for some steps at a time."""

    error: Tensor
    feedback: Feedback | None  # without it, the error is the signal
    shape: torch.Size  # of the neurons' output, [T, B, ...]
    every_step: bool  # whether the error has the dimension of time

    def weighted(self) -> tuple[Tensor, Tensor] | None:
        """Returns the error and the weights whose product the signal is, if it is one."""
        feedback = self.feedback
        if feedback is None or type(feedback).forward is not Feedback.forward:
            return None
        weight = None if hook_count(feedback) else feedback.matrix()
        if weight is None:
            return None
        error = self.error.to(torch.promote_types(self.error.dtype, weight.dtype))
        return error.contiguous(), weight.to(error).contiguous()

    def of(self, steps: slice) -> Tensor:
        """Returns the signal of some steps, ``[T, B, ...]`` in float32 or wider."""
        error = self.error[steps] if self.every_step else self.error
        signal = error if self.feedback is None else self.feedback(error)
        signal = signal.reshape(*error.shape[: 1 + self.every_step], *self.shape[2:])
        length = len(range(*steps.indices(self.shape[0])))
        return signal if self.every_step else signal.expand(length, *signal.shape)


def learning_signal(
    recording: Recording, rule: str, feedback: Feedback | None = None
) -> LearningSignal:
    """Returns the learning signal of the ``error`` that was given, or raises if it does not fit."""
    post, (error, each) = recording.activity("post"), _error_in(recording, rule, feedback)
    if error.is_complex():
        raise TypeError(f"Argument `error` of `{rule}` should be real. Found {error.dtype}.")
    error = error.to(post.device, torch.promote_types(error.dtype, torch.float32))
    if feedback is not None:
        neurons = post.shape[2:].numel()
        found = feedback(error[0, :1] if each else error[:1])[0].numel()
        if found != neurons:
            raise ValueError(
                f"Argument `feedback` of `{rule}` should give a signal to each of the {neurons}"
                f" neurons. Found {found}: make it for this layer."
            )
    return LearningSignal(error, feedback, post.shape, each)


_REMEDIES = (  # of a missing error: in a trainer, and in a function or a layer
    "call the trainer as `trainer(error=...)`, or give the callback"
    ' `input_keys=("error",)` and return `{"error": error}` from `training_step`.',
    "pass `error=...`.",
)


def _error_in(recording: Recording, rule: str, feedback: Feedback | None) -> tuple[Tensor, bool]:
    """Returns the ``error`` that was given, and whether it has steps, or raises for its shape."""
    error, (steps, batch, *shape) = recording.inputs.get("error"), recording.activity("post").shape
    by_class = feedback is not None and feedback.matrix() is not None
    dims = 1 if by_class else len(shape)  # after those of steps and samples
    found = list(error.shape) if isinstance(error, Tensor) else []
    each = len(found) == 2 + dims
    lead = [steps, batch] if each else [batch]
    led = len(found) == len(lead) + dims and found[: len(lead)] == lead
    alike = feedback is not None or math.prod(found[len(lead) :]) == math.prod(shape)
    if not (isinstance(error, Tensor) and led and alike):
        last = "classes" if by_class else ", ".join(map(str, shape))
        mend = _REMEDIES[recording.inputs.direct]
        if each and found[:2] == [batch, steps] != lead:
            mend = "time is its first dimension, so call `error.transpose(0, 1)`."
        elif led:
            mend = "give each output its own error, as `y - target` does."
        raise ValueError(
            f"Argument `error` of `{rule}` should be a tensor [T, B, {last}] or [B, {last}], with"
            f" {steps} steps and a batch of {batch}. Found"
            f" {found if isinstance(error, Tensor) else type(error).__name__}: {mend}"
        )
    return error, each
