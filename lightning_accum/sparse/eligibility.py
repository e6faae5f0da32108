"""Eligibility propagation in blocks of steps, whose temporaries stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from lightning_accum.functional.eligibility import Eligibility, fold_eligibility
from lightning_accum.sparse.kernel_eligibility import Potential, fold_steps

# Elements of a block: 512 KB in float32, of which a block takes two to four at a time.
_BLOCK = 1 << 17


def fold_in_blocks(
    learning_signal: Callable[[slice], Tensor],
    potential: Potential,
    out: Tensor,
    kappa: float = 0.0,
    beta: float = 0.0,
    rho: float = 0.0,
    unfiltered: Tensor | None = None,
) -> Eligibility:
    """Folds learning signals that are computed block by block, and so are pseudo-derivatives.

    The plain form is :func:`lightning_accum.functional.fold_eligibility` of all steps at once.

    Args:
        learning_signal: returns the learning signals of a span of steps.
        potential: what the pseudo-derivatives are computed of, ``[T, ...]``.
        out: ``[T, ...]`` receives the postsynaptic signal.
        kappa: decay of the readout's filter per step.
        beta: strength of the adaptation.
        rho: decay of the adaptation per step.
        unfiltered: a learning signal of every step that the readout does not filter.
    """
    blocks = _Blocks(learning_signal, potential, (kappa, beta, rho), unfiltered, out[0])
    folded = blocks.at_rest()
    for span in blocks.spans(0, len(out)):
        folded = blocks.fold(span, out[span], folded)
    return folded._replace(post=out)


def fold_to_edges(
    learning_signal: Callable[[slice], Tensor],
    potential: Potential,
    like: Tensor,
    length: int,
    constants: tuple[float, float, float],
    unfiltered: Tensor | None = None,
) -> dict[int, tuple[Tensor, Tensor]]:
    """Returns what the steps from each edge on are folded to, without their postsynaptic signal.

    Args:
        learning_signal: returns the learning signals of a span of steps.
        potential: what the pseudo-derivatives are computed of, ``[T, ...]``.
        like: of the dtype and device of the computation.
        length: how many steps lie between two edges, the first of which is after as many steps.
        constants: the decay of the readout, the strength of the adaptation, and its decay.
        unfiltered: a learning signal of every step that the readout does not filter.

    Returns:
        By the place of each edge, the factors of the filtered eligibility and of the adaptation.
    """
    steps, *shape = potential.membrane.shape
    one = like.new_empty(shape)
    blocks, found = _Blocks(learning_signal, potential, constants, unfiltered, one), {}
    room, folded = like.new_empty(min(steps, blocks.length), *shape), blocks.at_rest()
    for edge in reversed(range(length, steps, length)):
        for span in blocks.spans(edge, min(steps, edge + length)):
            folded = blocks.fold(span, room[: span.stop - span.start], folded)
        found[edge] = folded.filtered.clone(), folded.adaptation.clone()
    return found


class _Blocks:
    """Folds a window block by block, the last one first.

    Args:
        learning_signal: returns the learning signals of a span of steps.
        potential: what the pseudo-derivatives are computed of.
        constants: the decay of the readout, the strength of the adaptation, and its decay.
        unfiltered: a learning signal of every step that the readout does not filter.
        one: ``[...]`` like the postsynaptic signal of a step.
    """

    def __init__(
        self,
        learning_signal: Callable[[slice], Tensor],
        potential: Potential,
        constants: tuple[float, float, float],
        unfiltered: Tensor | None,
        one: Tensor,
    ) -> None:
        self.learning_signal = learning_signal
        self.potential = potential
        self.constants = constants
        self.unfiltered = (
            None if unfiltered is None else unfiltered.to(one.dtype).expand(one.shape).contiguous()
        )
        self.one = one
        steps = len(potential.membrane)
        self.length = max(1, _BLOCK // max(1, one.numel())) if one.is_cpu else steps

    def at_rest(self) -> Eligibility:
        """Returns what no steps are folded to."""
        return Eligibility(self.one, *self.one.new_zeros(2, *self.one.shape).unbind(0))

    def spans(self, start: int, stop: int) -> list[slice]:
        """Returns the blocks of some steps, the last one first."""
        return [slice(max(start, at - self.length), at) for at in range(stop, start, -self.length)]

    def fold(self, span: slice, out: Tensor, folded: Eligibility) -> Eligibility:
        """Writes the signal of a block, and returns what it and the steps behind are folded to."""
        signal, part = (
            self.learning_signal(span).to(out.dtype).contiguous(),
            self.potential.part(span),
        )
        behind = folded.filtered, folded.adaptation
        if fold_steps(signal, part, out, behind, self.constants, self.unfiltered):
            return folded
        psi = part.derivative().to(out.dtype)
        return fold_eligibility(signal, psi, *self.constants, self.unfiltered, out, folded)
