"""Spikes: how they are drawn, and the pseudo-derivatives that gradients take through them."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from lightning_accum._checks import (
    check_counts,
    check_floats,
    check_numbers,
    check_positive,
    check_range,
    check_tensors,
    check_value,
)
from lightning_accum.functional.dtypes import at_least_float32


def poisson_encode(
    x: Tensor, steps: int, p: float = 1.0, generator: torch.Generator | None = None
) -> Tensor:
    r"""Draws independent Bernoulli spikes, the discrete form of a Poisson process.

    .. math::
        s_t \sim \text{Bernoulli}(p \, x), \qquad t = 1, \dots, T

    Args:
        x: intensities in :math:`[0, 1]`, any shape ``[...]``.
        steps: number of time steps :math:`T`.
        p: probability of a spike in one step at intensity 1.
        generator: random number generator on the device of ``x``; the global one when ``None``.

    Returns:
        Boolean spikes, shape ``[T, ...]``.

    Raises:
        ValueError: if ``steps`` is not positive, ``p`` is not a probability, or an intensity on the
            CPU, whose values nothing waits for, lies outside of :math:`[0, 1]` or is NaN.

    Example:
        >>> import torch
        >>> poisson_encode(torch.tensor([0.0, 1.0]), steps=3)
        tensor([[False,  True],
                [False,  True],
                [False,  True]])
    """
    check_tensors(x=x)
    check_counts("a positive number of time steps", steps=steps)
    check_numbers(p=p)
    how = "lower the rate or the time step"
    check_value(0.0 <= p <= 1.0, "p", p, "a probability in [0, 1]", how)
    check_range("x", x, 1, "hold intensities in [0, 1]", ": scale the input, as `x / x.max()`")
    # half precision could not tell small probabilities apart
    dtype = at_least_float32(x.dtype)
    noise = torch.rand((steps, *x.shape), dtype=dtype, device=x.device, generator=generator)
    return noise < x.detach().to(dtype) * p


@dataclass(frozen=True)
class Surrogate(ABC):
    r"""Stands in for the derivative of the step function, which is zero almost everywhere.

    A spike is :math:`z = H(x)` of the potential above the threshold, :math:`x = v - A`. A subclass
    says what counts as :math:`\psi(x) = \partial z / \partial x`.

    Raises:
        ValueError: if one of its constants is not positive and finite.
    """

    def __post_init__(self) -> None:
        check_positive(**vars(self))

    @abstractmethod
    def derivative(self, x: Tensor) -> Tensor:
        r"""Returns :math:`\psi(x)` of potentials above the threshold, of any shape."""

    def form(self) -> tuple[str, float, float] | None:
        """Returns the name and two constants of the form that is compiled, ``None`` if none is."""
        return None

    def spike(self, x: Tensor) -> Tensor:
        """Returns 1 where ``x`` is at least zero and 0 elsewhere; its gradient is the derivative.

        Example:
            >>> import torch
            >>> x = torch.tensor([-0.5, 0.0, 2.0], requires_grad=True)
            >>> z = Triangular(dampening=1.0).spike(x)
            >>> z.sum().backward()
            >>> z.detach(), x.grad
            (tensor([0., 1., 1.]), tensor([0.5000, 1.0000, 0.0000]))
        """
        spikes: Tensor = _Spike.apply(x, self)  # type: ignore[no-untyped-call]
        return spikes


@final
@dataclass(frozen=True)
class Triangular(Surrogate):
    r"""A triangle around the threshold.

    .. math:: \psi(x) = \frac{\gamma}{h} \max\left(0, 1 - \frac{|x|}{h}\right)

    Args:
        dampening: :math:`\gamma`, which keeps gradients from growing through many steps.
        width: :math:`h`, how far from the threshold the derivative reaches zero; in the paper, the
            threshold itself.

    Example:
        >>> import torch
        >>> Triangular(0.3).derivative(torch.tensor([-1.0, -0.5, 0.0]))
        tensor([0.0000, 0.1500, 0.3000])

    Source:
        Bellec et al. 2020, doi:10.1038/s41467-020-17236-y, eq. 5.
    """

    dampening: float = 0.3
    width: float = 1.0

    def form(self) -> tuple[str, float, float]:
        r"""Returns the constants of :math:`\max(0, a - b |x|)`."""
        slope = self.dampening / self.width
        return "triangular", slope, slope / self.width

    def derivative(self, x: Tensor) -> Tensor:
        r"""Returns :math:`\psi(x)`."""
        slope = self.dampening / self.width
        check_floats(x=x)
        return x.abs().mul_(-slope / self.width).add_(slope).clamp_(min=0.0)


@final
@dataclass(frozen=True)
class FastSigmoid(Surrogate):
    r"""The derivative of a fast sigmoid.

    .. math:: \psi(x) = \frac{1}{(1 + k |x|)^2}

    Args:
        slope: :math:`k`.

    Example:
        >>> import torch
        >>> FastSigmoid(10.0).derivative(torch.tensor([-0.1, 0.0, 0.9]))
        tensor([0.2500, 1.0000, 0.0100])

    Source:
        Zenke & Ganguli 2018, doi:10.1162/neco_a_01086.
    """

    slope: float = 25.0

    def form(self) -> tuple[str, float, float]:
        r"""Returns the constants of :math:`1 / (1 + a |x|)^2`; the second is not used."""
        return "fast sigmoid", self.slope, 0.0

    def derivative(self, x: Tensor) -> Tensor:
        r"""Returns :math:`\psi(x)`."""
        check_floats(x=x)
        return x.abs().mul_(self.slope).add_(1.0).pow_(-2)


@final
@dataclass(frozen=True)
class ArcTan(Surrogate):
    r"""The derivative of an arctangent.

    .. math:: \psi(x) = \frac{\alpha}{2 \left(1 + (\frac{\pi}{2} \alpha x)^2\right)}

    Args:
        alpha: :math:`\alpha`.

    Example:
        >>> import torch
        >>> ArcTan(2.0).derivative(torch.tensor([0.0, 1 / torch.pi]))
        tensor([1.0000, 0.5000])

    Source:
        Fang et al. 2021, arXiv:2007.05785.
    """

    alpha: float = 2.0

    def form(self) -> tuple[str, float, float]:
        r"""Returns the constants of :math:`b / (1 + (a x)^2)`."""
        return "arctan", math.pi / 2 * self.alpha, self.alpha / 2

    def derivative(self, x: Tensor) -> Tensor:
        r"""Returns :math:`\psi(x)`."""
        check_floats(x=x)
        scaled = x.mul(math.pi / 2 * self.alpha).square_().add_(1.0)
        return scaled.reciprocal_().mul_(self.alpha / 2)


class _Spike(torch.autograd.Function):
    """The step function forward, a surrogate's derivative backward."""

    @staticmethod
    def forward(x: Tensor, surrogate: Surrogate) -> Tensor:
        return (x >= 0).to(x.dtype)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, ctx.surrogate = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return grad * ctx.surrogate.derivative(x), None
