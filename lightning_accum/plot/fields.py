"""The weights of neurons as images."""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt

from torch import Tensor


def receptive_fields(
    weight: Tensor, shape: Sequence[int] | None = None, argument: str = "shape"
) -> Tensor | None:
    """Returns the weights of each neuron as an image.

    Args:
        weight: ``[out, in]`` of a linear layer; ``[out, channels, height, width]`` of a
            convolution, of which each channel is one image; or images ``[N, height, width]``.
        shape: height and width of the input of a linear layer. If it is ``None`` and the number of
            inputs is not a square, all weights are one image.
        argument: what the caller calls the shape, for the message.

    Returns:
        Images ``[N, height, width]`` in float32 on the CPU; ``None`` for other weights.

    Raises:
        ValueError: if ``shape`` does not fit the number of inputs.
    """
    weight = weight.detach().float().cpu().contiguous()
    if weight.ndim == 4:
        return weight.flatten(0, 1)
    if weight.ndim != 2:
        return weight if weight.ndim == 3 else None
    inputs = weight.shape[1]
    side = isqrt(inputs)
    if shape is None:
        if side**2 != inputs or side < 2:
            return weight.unsqueeze(0)
        shape = (side, side)
    if len(shape) != 2 or shape[0] * shape[1] != inputs:
        raise ValueError(
            f"Argument `{argument}` should give the height and width of {inputs} inputs. Found"
            f" `{tuple(shape)}`."
        )
    return weight.view(-1, *shape)
