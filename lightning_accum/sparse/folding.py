"""The folded signal of eligibility propagation, which the kernel computes where it is summed."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.sparse.compiled import At, Int, are_values, has_kernel, pointer
from lightning_accum.sparse.kernel_eligibility import FoldConstants, Potential

# With more outputs, a matrix product makes the learning signals faster.
MOST_CLASSES = 32


class _Folding(ctypes.Structure):
    _fields_ = (
        ("constants", FoldConstants),
        *((name, Int) for name in ("classes", "every_step")),
        *((name, At) for name in ("errors", "feedback", "limits", "unfiltered")),
        *((name, At) for name in ("filtered", "adaptation")),
    )


class Folding(NamedTuple):
    """A signal ``[T, B, N]`` that is folded backwards in time, and what it is folded of.

    Args:
        values: returns all values, the plain form of what the kernel computes on the way.
        errors: ``[T, B, classes]``, or ``[B, classes]`` if it is the same in all steps.
        feedback: ``[classes, N]``, which makes the learning signal of the errors.
        potential: what the pseudo-derivative is computed of.
        constants: the decay of the readout, the strength of the adaptation, and its decay.
        unfiltered: ``[N]`` a learning signal that is added in every step.
        behind: ``[B, N]`` the factors of the filtered eligibility and of the adaptation that the
            steps behind these left; zero if ``None``.
    """

    values: Callable[[], Tensor]
    errors: Tensor
    feedback: Tensor
    potential: Potential
    constants: tuple[float, float, float]
    unfiltered: Tensor | None = None
    behind: tuple[Tensor, Tensor] | None = None

    @property
    def shape(self) -> torch.Size:
        """The shape of the values, ``[T, B, N]``."""
        return self.potential.membrane.shape

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the values."""
        return self.potential.membrane.dtype

    @property
    def device(self) -> torch.device:
        """The device of the values."""
        return self.potential.membrane.device

    def suits_kernel(self) -> bool:
        """Returns whether there is a kernel that computes it on the way."""
        shape, dtype, (classes, *rest) = self.shape, self.dtype, self.feedback.shape
        threshold, form = self.potential.threshold, self.potential.surrogate.form()
        if form is None or len(shape) != 3 or rest != [shape[-1]] or classes > MOST_CLASSES:
            return False
        lead = shape[:2] if self.errors.ndim == 3 else shape[1:2]
        values: list[tuple[Tensor | None, Sequence[int]]] = [
            (self.potential.membrane, shape),
            (threshold if isinstance(threshold, Tensor) else None, shape),
            (self.errors, (*lead, classes)),
            (self.feedback, (classes, shape[-1])),
            (self.unfiltered, shape[2:]),
            *((each, shape[1:]) for each in self.behind or ()),
        ]
        fits = (each is None or are_values(each, torch.Size(of), dtype) for each, of in values)
        return has_kernel(self.device, dtype) and all(fits)

    def for_kernel(self) -> ctypes.Structure:
        """Returns what the kernel reads; it is valid as long as this object."""
        threshold = self.potential.threshold
        limits = threshold if isinstance(threshold, Tensor) else None
        filtered, adaptation = self.behind or (None, None)
        constants = FoldConstants.of(self.potential, self.constants)
        sizes = len(self.feedback), self.errors.ndim == 3
        tensors = self.errors, self.feedback, limits, self.unfiltered, filtered, adaptation
        return _Folding(constants, *sizes, *map(pointer, tensors))
