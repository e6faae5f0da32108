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
    steps = len(out)
    length = max(1, _BLOCK * steps // max(1, out.numel())) if out.is_cpu else steps
    behind = out.new_zeros(2, *out.shape[1:]).unbind(0)
    folded = Eligibility(out, *behind)
    if unfiltered is not None:
        unfiltered = unfiltered.to(out.dtype).expand(out.shape[1:]).contiguous()
    for end in range(steps, 0, -length):
        span = slice(max(0, end - length), end)
        signal, part = learning_signal(span).to(out.dtype).contiguous(), potential.part(span)
        before = folded.filtered, folded.adaptation
        if not fold_steps(signal, part, out[span], before, (kappa, beta, rho), unfiltered):
            psi = part.derivative().to(out.dtype)
            folded = fold_eligibility(
                signal, psi, kappa, beta, rho, unfiltered, out=out[span], following=folded
            )
    return folded._replace(post=out)
