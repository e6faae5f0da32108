"""Initial weights that are drawn from data."""

import math

import torch
from torch import Tensor

from lightning_accum._checks import check_shape, check_tensors
from lightning_accum.functional.dtypes import widened
from lightning_accum.updates.constraints import Normalize


@torch.no_grad()
def init_from_data_(
    weight: Tensor,
    samples: Tensor,
    norm: float | None = None,
    order: float = 2.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Fills the weights of each output with a sample of its own, drawn at random.

    .. math::
        w_o = n \, \frac{x_{i(o)}}{\lVert x_{i(o)} \rVert_p}

    Neurons that compete then differ from the beginning, and each prefers inputs that there are.
    Samples of zeros, which would leave a neuron without weights, are not drawn.

    Args:
        weight: changed in place, ``[out, ...]``, such as that of a ``Linear`` or a ``Conv2d``.
        samples: ``[N, ...]``, each with as many numbers as an output has weights: images, or for a
            convolution patches.
        norm: the norm :math:`n` of each output's weights, as in
            :class:`~lightning_accum.Normalize`, or ``None`` to leave the samples' own.
        order: :math:`p`, usually 1 or 2.
        generator: random number generator on the samples' device; the global one when ``None``.

    Returns:
        The weight.

    Raises:
        TypeError: if an argument is not a tensor.
        ValueError: if shapes do not fit, a sample is not finite, or there are fewer samples that
            are not zeros than outputs.

    Example:
        >>> import torch
        >>> from lightning_accum.nn import Linear, init_from_data_
        >>> connection = Linear(2, 3, bias=False)
        >>> samples = torch.tensor([[3.0, 4.0], [0.0, 0.0], [0.0, 2.0], [5.0, 0.0]])
        >>> init_from_data_(connection.weight, samples, norm=1.0).data.sum(0)
        tensor([1.6000, 1.8000])

    Source:
        MacQueen 1967, "Some methods for classification and analysis of multivariate observations",
        whose k-means begins with samples.
    """
    check_tensors(weight=weight, samples=samples)
    check_shape(weight.ndim > 1, "weight", weight, "shape [out, ...]")
    outputs, size = len(weight), math.prod(weight.shape[1:])
    fits = samples.ndim > 1 and math.prod(samples.shape[1:]) == size
    should = f"shape [N, ...], with {size} numbers in a sample, as the weights of an output"
    check_shape(fits, "samples", samples, should, "for a convolution, pass patches")
    rows = widened(samples.reshape(len(samples), size))
    if not rows.isfinite().all():
        raise ValueError(
            "Argument `samples` should be finite. Found NaN or inf: leave those samples out."
        )
    usable = rows.any(1).nonzero().flatten()
    if len(usable) < outputs:
        raise ValueError(
            f"Argument `samples` should hold a sample that is not zeros for each of {outputs}"
            f" outputs. Found {len(usable)}: pass more samples."
        )
    drawn = torch.randperm(len(usable), generator=generator, device=rows.device)[:outputs]
    rows = rows[usable[drawn]]
    if norm is not None:
        Normalize(norm, order)(rows)
    return weight.copy_(rows.view(weight.shape))
