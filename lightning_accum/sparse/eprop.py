"""Eligibility propagation, folded backwards in time: in blocks that stay in the cache, or in C."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum.functional.eprop import Eligibility, fold_eligibility
from lightning_accum.functional.surrogate_gradients import Surrogate
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.kernel_library import At, Int, Real, arguments, fields

_FORMS = ("triangular", "fast sigmoid", "arctan")
_NEURONS = 2048  # neurons that a thread works on at a time


class Potential(NamedTuple):
    """What a pseudo-derivative is computed of."""

    membrane: Tensor  # [T, ...] the potential
    threshold: Tensor | float  # the threshold, [T, ...] or a number
    surrogate: Surrogate  # makes the pseudo-derivative of both

    def part(self, steps: slice) -> Potential:
        """Returns some steps of it."""
        threshold = self.threshold if self.limits is None else self.limits[steps]
        return self._replace(membrane=self.membrane[steps], threshold=threshold)

    @property
    def limits(self) -> Tensor | None:
        """The thresholds of all steps; ``None`` for a number."""
        return self.threshold if isinstance(self.threshold, Tensor) else None

    def derivative(self) -> Tensor:
        """Returns the pseudo-derivative of every step, in float32 or wider."""
        wide = torch.promote_types(self.membrane.dtype, torch.float32)
        return self.surrogate.derivative(self.membrane.to(wide) - self.threshold)


class FoldNumbers(ctypes.Structure):
    """The constants of the pseudo-derivative and of the fold, as the kernel reads them."""

    _fields_ = (("form", Int), *fields(Real, "a b limit kappa beta rho"))

    @classmethod
    def of(cls, potential: Potential, constants: tuple[float, float, float]) -> FoldNumbers | None:
        """Returns them; ``None`` for a pseudo-derivative that the kernel does not know."""
        form, threshold = potential.surrogate.form(), potential.threshold
        if form is None:
            return None
        limit = 0.0 if isinstance(threshold, Tensor) else threshold
        return cls(_FORMS.index(form[0]), *form[1:], limit, *constants)


class _Fold(ctypes.Structure):
    _fields_ = (
        *fields(Int, "steps size"),
        ("constants", FoldNumbers),
        *fields(At, "signal membrane limits unfiltered filtered adaptation out"),
    )


def fold_steps(
    signal: Tensor,  # [T, ...] learning signals
    potential: Potential,  # the potential of the same steps
    out: Tensor,  # [T, ...] receives the postsynaptic signal; it may be signal
    behind: tuple[Tensor, Tensor],  # [...] what the steps behind left, replaced by that of these
    constants: tuple[float, float, float],  # kappa, beta, rho
    unfiltered: Tensor | None = None,  # [...] a learning signal that is added in every step
) -> bool:
    """Folds the learning signals of some steps, if there is a kernel for them."""
    # The plain form is `fold_eligibility`.
    dtype, shape = out.dtype, out.shape
    membrane, limits = potential.membrane, potential.limits
    values = [(each, shape) for each in (out, signal, membrane, limits)]
    values += ((each, shape[1:]) for each in (*behind, unfiltered))
    known, kernel = FoldNumbers.of(potential, constants), library.kernel_for(dtype, *values)
    if known is None or kernel is None or not shape or not out.numel():
        return False
    size = shape[1:].numel()
    places = arguments(signal, membrane, limits, unfiltered, *behind, out)
    task = _Fold(len(out), size, known, *places)
    pieces = -(-size // _NEURONS)
    threads = library.threads_among(pieces, out.numel())
    kernel.fold_eligibility(ctypes.byref(task), threads)
    return True


# Elements of a block: 512 KB in float32, of which a block takes two to four at a time.
_BLOCK = 1 << 17


def fold_in_blocks(
    learning_signal: Callable[[slice], Tensor],  # returns the learning signals of a span of steps
    potential: Potential,  # what the pseudo-derivatives are computed of, [T, ...]
    out: Tensor,  # [T, ...] receives the postsynaptic signal
    constants: tuple[float, float, float],  # kappa, beta, rho, as `fold_eligibility` has them
    unfiltered: Tensor | None = None,  # a learning signal of every step, which is not filtered
) -> Eligibility:
    """Folds learning signals that are computed block by block, and so are pseudo-derivatives."""
    # The plain form is `fold_eligibility` of all steps at once.
    fold = partial(_fold_block, learning_signal, potential, constants, unfiltered)
    folded = _at_rest(out[0])
    for span in _blocks(out[0], 0, len(out)):
        folded = fold(span, out[span], folded)
    return folded._replace(post=out)


def fold_to_edges(
    learning_signal: Callable[[slice], Tensor],  # returns the learning signals of a span of steps
    potential: Potential,  # what the pseudo-derivatives are computed of, [T, ...]
    like: Tensor,  # of the dtype and device of the computation
    length: int,  # how many steps lie between two edges, the first of which is after as many steps
    constants: tuple[float, float, float],
    unfiltered: Tensor | None = None,
) -> dict[int, tuple[Tensor, Tensor]]:
    """Returns by edge what the steps from there on are folded to, without postsynaptic signal."""
    steps, *shape = potential.membrane.shape
    fold = partial(_fold_block, learning_signal, potential, constants, unfiltered)
    folded, found = _at_rest(like.new_empty(shape)), {}
    for edge in reversed(range(length, steps, length)):
        for span in _blocks(folded.post, edge, min(steps, edge + length)):
            room = like.new_empty(span.stop - span.start, *shape)
            folded = fold(span, room, folded)._replace(post=folded.post)
        found[edge] = folded.filtered.clone(), folded.adaptation.clone()
    return found


def _at_rest(one: Tensor) -> Eligibility:
    """Returns what no steps are folded to."""
    return Eligibility(one, *one.new_zeros(2, *one.shape).unbind(0))


def _blocks(one: Tensor, start: int, stop: int) -> list[slice]:
    """Returns the blocks of some steps, the last one first; elsewhere than on the CPU a single."""
    length = max(1, _BLOCK // max(1, one.numel())) if one.is_cpu else max(1, stop - start)
    return [slice(max(start, at - length), at) for at in range(stop, start, -length)]


def _fold_block(
    learning_signal: Callable[[slice], Tensor],
    potential: Potential,
    constants: tuple[float, float, float],
    unfiltered: Tensor | None,
    span: slice,
    out: Tensor,
    folded: Eligibility,
) -> Eligibility:
    """Writes the signal of a block, and returns what it and the steps behind are folded to."""
    signal, part = learning_signal(span).to(out.dtype).contiguous(), potential.part(span)
    if unfiltered is not None:
        unfiltered = unfiltered.to(out.dtype).expand(out.shape[1:]).contiguous()
    behind = folded.filtered, folded.adaptation
    if fold_steps(signal, part, out, behind, constants, unfiltered):
        return folded
    psi = part.derivative().to(out.dtype)
    return fold_eligibility(signal, psi, *constants, unfiltered, out, folded)


# With more outputs, a matrix product makes the learning signals faster.
MOST_CLASSES = 32


class _Folding(ctypes.Structure):
    _fields_ = (
        ("constants", FoldNumbers),
        *fields(Int, "classes every_step"),
        *fields(At, "errors feedback limits unfiltered filtered adaptation"),
    )


class Folding(NamedTuple):
    """A signal ``[T, B, N]`` that is folded backwards in time, and what it is folded of."""

    values: Callable[[], Tensor]  # the plain form of what the kernel computes on the way
    errors: Tensor  # [T, B, classes], or [B, classes] if it is the same in all steps
    feedback: Tensor  # [classes, N], which makes the learning signal of the errors
    potential: Potential  # what the pseudo-derivative is computed of
    constants: tuple[float, float, float]  # kappa, beta, rho
    unfiltered: Tensor | None = None  # [N] a learning signal that is added in every step
    behind: tuple[Tensor, Tensor] | None = None  # [B, N] what the steps behind left; or zero

    def suits_kernel(self) -> bool:
        """Returns whether there is a kernel that computes it on the way."""
        membrane, classes = self.potential.membrane, len(self.feedback)
        shape, known = membrane.shape, self.potential.surrogate.form() is not None
        if not known or len(shape) != 3 or classes > MOST_CLASSES:
            return False
        lead = shape[:2] if self.errors.ndim == 3 else shape[1:2]
        values: list[tuple[Tensor | None, Sequence[int]]] = [
            (membrane, shape),
            (self.potential.limits, shape),
            (self.errors, (*lead, classes)),
            (self.feedback, (classes, shape[-1])),
            (self.unfiltered, shape[2:]),
            *((each, shape[1:]) for each in self.behind or ()),
        ]
        return library.kernel_for(membrane.dtype, *values) is not None

    def for_kernel(self) -> ctypes.Structure:
        """Returns what the kernel reads; it is valid as long as this object."""
        behind = self.behind or (None, None)
        constants = FoldNumbers.of(self.potential, self.constants)
        sizes = len(self.feedback), self.errors.ndim == 3
        tensors = self.errors, self.feedback, self.potential.limits, self.unfiltered, *behind
        return _Folding(constants, *sizes, *arguments(*tensors))
