"""Encoders that convert values to spike trains."""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_accum._checks import check_integers, check_numbers, check_tensors
from lightning_accum.functional.numbers import at_least_float32


def poisson_encode(
    x: Tensor,
    steps: int,
    p: float = 1.0,
    generator: torch.Generator | None = None,
    validate: bool = True,
) -> Tensor:
    r"""Draws independent Bernoulli spikes, the discrete form of a Poisson process.

    .. math::
        s_t \sim \text{Bernoulli}(p \, x), \qquad t = 1, \dots, T

    Args:
        x: intensities in :math:`[0, 1]`, any shape ``[...]``.
        steps: number of time steps :math:`T`.
        p: probability of a spike in one step at intensity 1.
        generator: random number generator on the device of ``x``; the global one when ``None``.
        validate: whether to check the range of ``x``, which waits for the device that holds it.

    Returns:
        Boolean spikes, shape ``[T, ...]``.

    Raises:
        ValueError: if ``steps`` is not positive, ``p`` is not a probability, or, with ``validate``,
            an intensity lies outside of :math:`[0, 1]` or is NaN.

    Example:
        >>> import torch
        >>> poisson_encode(torch.tensor([0.0, 1.0]), steps=3)
        tensor([[False,  True],
                [False,  True],
                [False,  True]])
    """
    check_tensors(x=x)
    check_integers(steps=steps)
    check_numbers(p=p)
    if steps < 1:
        raise ValueError(
            f"Argument `steps` should be a positive number of time steps. Found `steps = {steps}`."
        )
    if not 0.0 <= p <= 1.0:
        raise ValueError(
            f"Argument `p` should be a probability in [0, 1]. Found `p = {p}`. Lower the rate or "
            "the time step."
        )
    if validate and x.numel():
        low, high = x.aminmax()
        if not (low >= 0 and high <= 1):  # this form rejects NaN too
            raise ValueError(
                "Argument `x` should hold intensities in [0, 1]. Found values from "
                f"`{low.item():g}` to `{high.item():g}`. Scale the input, e.g. `x / x.max()`."
            )
    # half precision could not tell small probabilities apart
    dtype = at_least_float32(x.dtype)
    noise = torch.rand((steps, *x.shape), dtype=dtype, device=x.device, generator=generator)
    return noise < x.detach().to(dtype) * p
