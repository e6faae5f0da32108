"""The reducer that keeps the observations themselves."""

from __future__ import annotations

from torch import Tensor

from lightning_accum.observe.reducers.history import HistoryReducer


class PassthroughReducer(HistoryReducer):
    r"""Keeps the observations of the last ``duration`` ms, :math:`y_t = s_t`.

    Args:
        duration: how far back the history reaches, in ms; 0 for the latest only.
        dt: time between two observations, in ms.

    Example:
        >>> import torch
        >>> from lightning_accum.functional import interp_linear
        >>> history = PassthroughReducer(duration=2.0)
        >>> for value in (1.0, 2.0, 4.0, 8.0):
        ...     history(torch.tensor([value]))
        >>> history.dump().flatten().tolist()
        [2.0, 4.0, 8.0]
        >>> history.view(0.5), history.view(0.5, interpolation=interp_linear)
        (tensor([4.]), tensor([6.]))
    """

    def _fold(self, observation: Tensor, last: Tensor | None) -> Tensor:
        return observation
