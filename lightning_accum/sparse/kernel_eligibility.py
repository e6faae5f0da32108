"""The kernel's fold of eligibility propagation."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.functional.spikes import Surrogate
from lightning_accum.sparse.compiled import (
    At,
    Int,
    Real,
    are_values,
    kernel_for,
    pointer,
    threads_among,
)

_FORMS = ("triangular", "fast sigmoid", "arctan")
_NEURONS = 2048  # neurons that a thread works on at a time


class Potential(NamedTuple):
    """What a pseudo-derivative is computed of.

    Args:
        membrane: ``[T, ...]`` the potential.
        threshold: the threshold, ``[T, ...]`` or a number.
        surrogate: makes the pseudo-derivative of both.
    """

    membrane: Tensor
    threshold: Tensor | float
    surrogate: Surrogate

    def part(self, steps: slice) -> Potential:
        """Returns some steps of it.

        Args:
            steps: which steps.
        """
        threshold = self.threshold[steps] if isinstance(self.threshold, Tensor) else self.threshold
        return self._replace(membrane=self.membrane[steps], threshold=threshold)

    def derivative(self) -> Tensor:
        """Returns the pseudo-derivative of every step, in float32 or wider."""
        wide = torch.promote_types(self.membrane.dtype, torch.float32)
        return self.surrogate.derivative(self.membrane.to(wide) - self.threshold)


class FoldConstants(ctypes.Structure):
    """The constants of the pseudo-derivative and of the fold, as the kernel reads them."""

    _fields_ = (
        ("form", Int),
        *((name, Real) for name in ("a", "b", "limit", "kappa", "beta", "rho")),
    )

    @classmethod
    def of(
        cls, potential: Potential, constants: tuple[float, float, float]
    ) -> FoldConstants | None:
        """Returns them; ``None`` for a pseudo-derivative that the kernel does not know."""
        form, threshold = potential.surrogate.form(), potential.threshold
        if form is None:
            return None
        limit = 0.0 if isinstance(threshold, Tensor) else threshold
        return cls(_FORMS.index(form[0]), *form[1:], limit, *constants)


class _Fold(ctypes.Structure):
    _fields_ = (
        *((name, Int) for name in ("steps", "size")),
        ("constants", FoldConstants),
        *((name, At) for name in ("signal", "membrane", "limits", "unfiltered")),
        *((name, At) for name in ("filtered", "adaptation", "out")),
    )


def fold_steps(
    signal: Tensor,
    potential: Potential,
    out: Tensor,
    behind: tuple[Tensor, Tensor],
    constants: tuple[float, float, float],
    unfiltered: Tensor | None = None,
) -> bool:
    """Folds the learning signals of some steps, if there is a kernel for them.

    The plain form is :func:`lightning_accum.functional.fold_eligibility`.

    Args:
        signal: ``[T, ...]`` learning signals.
        potential: the potential of the same steps.
        out: ``[T, ...]`` receives the postsynaptic signal; it may be ``signal``.
        behind: ``[...]`` the factors of the filtered eligibility and of the adaptation that the
            steps behind these left, which are replaced by those of these steps.
        constants: the decay of the readout, the strength of the adaptation, and its decay.
        unfiltered: ``[...]`` a learning signal that is added in every step.

    Returns:
        Whether it is done; if not, nothing has changed.
    """
    dtype, shape = out.dtype, out.shape
    known = FoldConstants.of(potential, constants)
    if known is None or not shape or not out.numel():
        return False
    membrane, threshold = potential.membrane, potential.threshold
    limits = threshold if isinstance(threshold, Tensor) else None
    whole = [out, signal, membrane, *([] if limits is None else [limits])]
    one = [*behind, *([] if unfiltered is None else [unfiltered])]
    values = [(whole, shape), (one, shape[1:])]
    if not all(are_values(each, of, dtype) for tensors, of in values for each in tensors):
        return False
    kernel = kernel_for(dtype)
    if kernel is None:
        return False
    size = shape[1:].numel()
    pointers = map(pointer, (signal, membrane, limits, unfiltered, *behind, out))
    task = _Fold(len(out), size, known, *pointers)
    pieces = -(-size // _NEURONS)
    threads = threads_among(pieces, out.numel())
    kernel.fold_eligibility(ctypes.byref(task), threads)
    return True
