"""Kernels: the weight change for the time between two spikes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_positive

Kernel: TypeAlias = Callable[[Tensor], Tensor]
"""Returns the change for time differences, post minus pre, in ms."""


class Coefficients(NamedTuple):
    r"""Coefficients of :math:`K(\Delta) = A_\pm\, e^{l_\pm |\Delta| + c \Delta^2} - B`."""

    heights: tuple[float, float]  # A for differences of at least 0, and below
    slopes: tuple[float, float] = (0.0, 0.0)  # l for the same; not positive
    curve: float = 0.0  # c; not positive
    offset: float = 0.0  # B


@final
@dataclass(frozen=True)
class ExponentialKernel:
    r"""The classic window of pair-based STDP, with an exponential on either side.

    .. math::
        K(\Delta) = \begin{cases}
            A_\text{post}\, e^{-\Delta / \tau_\text{pre}} & \Delta \ge 0 \\
            A_\text{pre}\, e^{\Delta / \tau_\text{post}} & \Delta < 0
        \end{cases}

    Args:
        lr_post: change :math:`A_\text{post}` if the postsynaptic spike comes last.
        lr_pre: change :math:`A_\text{pre}` if the presynaptic spike comes last.
        tc_post: time constant of the postsynaptic trace, in ms.
        tc_pre: time constant of the presynaptic trace, in ms.

    Raises:
        ValueError: if a time constant is not positive.

    Example:
        >>> import torch
        >>> ExponentialKernel(1.0, -0.5)(torch.tensor([-20.0, 0.0, 20.0]))
        tensor([-0.1839,  1.0000,  0.3679])

    Source:
        Bi & Poo 1998, doi:10.1523/JNEUROSCI.18-24-10464.1998, fig. 7.
    """

    lr_post: float
    lr_pre: float
    tc_post: float = 20.0
    tc_pre: float = 20.0

    def __post_init__(self) -> None:
        check_finite(**vars(self))
        check_positive("a positive time in ms", tc_post=self.tc_post, tc_pre=self.tc_pre)

    def __call__(self, delta: Tensor) -> Tensor:
        """Returns the change for time differences of any shape, post minus pre, in ms."""
        after = self.lr_post * torch.exp(-delta.clamp(min=0) / self.tc_pre)
        before = self.lr_pre * torch.exp(delta.clamp(max=0) / self.tc_post)
        return torch.where(delta >= 0, after, before)

    def coefficients(self) -> Coefficients:
        """Returns the coefficients of this kernel."""
        return Coefficients((self.lr_post, self.lr_pre), (-1 / self.tc_pre, -1 / self.tc_post))


@final
@dataclass(frozen=True)
class GaussianKernel:
    r"""A symmetric window minus a constant, for spikes that coincide in any order.

    .. math:: K(\Delta) = A\, e^{-\Delta^2 / 2\sigma^2} - B

    Args:
        lr: height :math:`A`.
        width: :math:`\sigma`, in ms.
        offset: :math:`B`, the depression by every pair.

    Raises:
        ValueError: if the width is not positive.

    Example:
        >>> import torch
        >>> GaussianKernel(1.0, width=10.0, offset=0.1)(torch.tensor([-10.0, 0.0, 10.0]))
        tensor([0.5065, 0.9000, 0.5065])

    Source:
        Symmetric windows of inhibitory synapses: Woodin, Ganguly & Poo 2003,
        doi:10.1016/S0896-6273(03)00507-5.
    """

    lr: float
    width: float = 20.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        check_finite(**vars(self))
        check_positive("a positive time in ms", width=self.width)

    def __call__(self, delta: Tensor) -> Tensor:
        """Returns the change for time differences of any shape, post minus pre, in ms."""
        return self.lr * torch.exp(-0.5 * (delta / self.width) ** 2) - self.offset

    def coefficients(self) -> Coefficients:
        """Returns the coefficients of this kernel."""
        return Coefficients((self.lr, self.lr), curve=-0.5 / self.width**2, offset=self.offset)


def coefficients_of(kernel: Kernel) -> Coefficients | None:
    """Returns the coefficients of a kernel of a closed form, ``None`` for any other function."""
    if isinstance(kernel, (ExponentialKernel, GaussianKernel)):
        return kernel.coefficients()
    return None


def changes(kernel: Kernel, delta: Tensor) -> Tensor:
    """Returns the kernel of time differences, and zero where they are infinite: without a spike."""
    seen = delta.isfinite()
    return torch.where(seen, kernel(torch.where(seen, delta, 0.0)), 0.0)
