"""Interpolations of a value between two observations."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from lightning_accum._checks import check_numbers, check_tensors
from lightning_accum.functional.numbers import at_least_float32


class Interpolation(Protocol):
    r"""Estimates a value ``elapsed`` ms after one observation and ``dt - elapsed`` before the next.

    Args:
        earlier: ``[...]`` the observation :math:`y_0` at or before the time.
        later: ``[...]`` the observation :math:`y_1` at or after it, :math:`y_0` if they coincide.
        elapsed: time :math:`t` since ``earlier`` in ms, at least 0 and less than ``dt``; it
            broadcasts.
        dt: time :math:`\Delta t` between the two observations, in ms.
    """

    def __call__(self, earlier: Tensor, later: Tensor, elapsed: Tensor, dt: float) -> Tensor:
        """Returns the value at that time, ``[...]``."""
        ...


def interp_previous(earlier: Tensor, later: Tensor, elapsed: Tensor, dt: float) -> Tensor:
    r"""Returns the observation at or before a time, :math:`y(t) = y_0`.

    Example:
        >>> import torch
        >>> interp_previous(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor(0.9), 1.0)
        tensor([1.])
    """
    return earlier


def interp_next(earlier: Tensor, later: Tensor, elapsed: Tensor, dt: float) -> Tensor:
    r"""Returns the observation at or after a time, :math:`y(t) = y_1`.

    Example:
        >>> import torch
        >>> interp_next(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor(0.1), 1.0)
        tensor([2.])
    """
    return later


def interp_nearest(earlier: Tensor, later: Tensor, elapsed: Tensor, dt: float) -> Tensor:
    r"""Returns the observation nearest to a time, the earlier one for a tie.

    .. math::
        y(t) = \begin{cases} y_0 & t \le \Delta t / 2 \\ y_1 & t > \Delta t / 2 \end{cases}

    Example:
        >>> import torch
        >>> interp_nearest(torch.zeros(2), torch.ones(2), torch.tensor([0.5, 0.6]), 1.0)
        tensor([0., 1.])
    """
    _check(earlier, later, elapsed, dt)
    return torch.where(elapsed > dt / 2, later, earlier)


def interp_linear(earlier: Tensor, later: Tensor, elapsed: Tensor, dt: float) -> Tensor:
    r"""Interpolates linearly between both, :math:`y(t) = y_0 + (y_1 - y_0)\,t / \Delta t`.

    Example:
        >>> import torch
        >>> interp_linear(torch.tensor([1.0]), torch.tensor([2.0]), torch.tensor(0.5), 2.0)
        tensor([1.2500])
    """
    _check(earlier, later, elapsed, dt)
    dtype = at_least_float32(earlier.dtype)
    weight = (elapsed / dt).to(dtype)
    return earlier.to(dtype).lerp(later.to(dtype), weight)


def interp_exponential(
    earlier: Tensor, later: Tensor, elapsed: Tensor, dt: float, tc: float
) -> Tensor:
    r"""Returns the earlier observation after its decay, :math:`y(t) = y_0\,e^{-t / \tau}`.

    Fix the time constant :math:`\tau`, in ms, with ``functools.partial`` to make an
    :class:`Interpolation`.

    Example:
        >>> import torch
        >>> from functools import partial
        >>> decayed = partial(interp_exponential, tc=20.0)
        >>> decayed(torch.tensor([1.0]), torch.tensor([9.0]), torch.tensor(0.5), 1.0)
        tensor([0.9753])
    """
    _check(earlier, later, elapsed, dt)
    check_numbers(tc=tc)
    if not tc > 0:
        raise ValueError(
            f"Argument `tc` should be a positive time constant in ms. Found `{tc = }`."
        )
    dtype = at_least_float32(earlier.dtype)
    return earlier.to(dtype) * torch.exp(-elapsed / tc).to(dtype)


def _check(earlier: Tensor, later: Tensor, elapsed: Tensor, dt: float) -> None:
    check_tensors(earlier=earlier, later=later, elapsed=elapsed)
    check_numbers(dt=dt)
    for name, value in (("later", later), ("elapsed", elapsed)):
        if value.is_complex() and not (name == "later" and earlier.is_complex()):
            raise TypeError(
                f"Argument `{name}` should be real. Found `{name}.dtype = {value.dtype}`."
            )
