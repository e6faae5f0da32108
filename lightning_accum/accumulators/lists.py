"""A list of all values, in order."""

from __future__ import annotations

from typing import Any

import torch
from lightning_utilities import apply_to_collection
from torch import Tensor

from lightning_accum.accumulators._keeping import Keeping


class List(Keeping):
    """A list of all values, in order; of several processes, in the order of their ranks.

    Memory grows with every value: prefer :class:`Sum` or :class:`Mean` if they suffice. Tensors,
    also in tuples, lists and dictionaries, are copied without their graph; any other object is
    kept unchanged. ``torch.load(weights_only=True)`` cannot read a state dict with objects other
    than tensors and builtins.

    Args:
        **kwargs: passed to :class:`torchmetrics.Metric`; ``compute_on_cpu=True`` keeps tensors in
            the host's memory.

    Example:
        >>> import torch
        >>> from lightning_accum.accumulators import List
        >>> values = List()
        >>> values(torch.tensor([1, 2]))
        [tensor([1, 2])]
        >>> values("anything")
        [tensor([1, 2]), 'anything']
    """

    def update(self, value: Any) -> None:
        """Adds a value.

        Args:
            value: any object.
        """
        self.values.append(apply_to_collection(value, Tensor, self._owned))

    def compute(self) -> list[Any]:
        """Returns a new list of the values, with copies of the tensors."""
        return apply_to_collection(list(self.values), Tensor, torch.clone)  # type: ignore[no-any-return]

    def _owned(self, tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        return tensor.cpu() if self.compute_on_cpu and not tensor.is_cpu else tensor.clone()
