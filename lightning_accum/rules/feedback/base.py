"""The base of feedback: how an error of the outputs reaches each hidden neuron."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from lightning_accum._checks import check_tensors


class Feedback(nn.Module, ABC):
    r"""Turns the error of the outputs into a learning signal of each neuron.

    .. math:: L_j(t) = \sum_k B_{kj}\, \delta_k(t)
    """

    def bind_model(self, model: nn.Module) -> None:
        """Looks up what the feedback needs of a model.

        Args:
            model: the model.
        """

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
        if not error.ndim or error.shape[-1] != len(weight):
            raise ValueError(
                f"Argument `error` should have shape [..., {len(weight)}], an entry for each"
                f" output of `{type(self).__name__}`. Found {list(error.shape)}."
            )
        dtype = torch.promote_types(error.dtype, weight.dtype)
        return error.detach().to(dtype) @ weight.to(error.device, dtype)
