"""Weights among the neurons of one layer."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from lightning_accum._checks import check_integers
from lightning_accum.updates import Updatable


@final
class RecurrentLinear(Updatable, nn.Linear):
    r"""Weights among the neurons of one layer, :math:`R\, z(t - \Delta t)`.

    The neurons multiply by them step by step. They call the module once for each input, so that
    monitors see the spikes of the step before and rules learn the weights, as those of any other
    connection: ``CellSpec("lif.recurrent", "lif")``.

    Args:
        size: number of neurons.

    Raises:
        ValueError: if the size is negative.

    Example:
        >>> import torch
        >>> RecurrentLinear(3)(torch.zeros(1, 3)).shape
        torch.Size([1, 3])
    """

    def __init__(self, size: int) -> None:
        check_integers(size=size)
        if size < 0:
            raise ValueError(
                f"Argument `size` should be a number of neurons. Found `size = {size!r}`."
            )
        super().__init__(size, size, bias=False)

    def forward(self, spikes: Tensor, computed: bool = False) -> Tensor:
        """Returns the current that spikes make, unless the neurons have computed it.

        Args:
            spikes: ``[..., N]``, of the step before.
            computed: whether the neurons have computed the product; the spikes are returned then.
        """
        return spikes if computed else super().forward(spikes)
