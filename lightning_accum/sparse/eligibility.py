"""Eligibility propagation in blocks of steps, whose temporaries stay in the cache."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from lightning_accum.functional.eligibility import Eligibility, fold_eligibility

# Elements of a block: 256 KB in float32, of which a block takes three or four at a time.
_BLOCK = 1 << 16


def fold_in_blocks(
    learning_signal: Callable[[slice], Tensor],
    derivative: Callable[[slice], Tensor],
    out: Tensor,
    kappa: float = 0.0,
    beta: float = 0.0,
    rho: float = 0.0,
    unfiltered: Tensor | None = None,
) -> Eligibility:
    """Folds learning signals and pseudo-derivatives that are computed block by block.

    The plain form is :func:`lightning_accum.functional.fold_eligibility` of all steps at once.

    Args:
        learning_signal: returns the learning signals of a span of steps.
        derivative: returns the pseudo-derivatives of a span of steps.
        out: ``[T, ...]`` receives the postsynaptic signal.
        kappa: decay of the readout's filter per step.
        beta: strength of the adaptation.
        rho: decay of the adaptation per step.
        unfiltered: a learning signal of every step that the readout does not filter.
    """
    steps = len(out)
    length = max(1, _BLOCK * steps // max(1, out.numel())) if out.is_cpu else steps
    folded: Eligibility | None = None
    for end in range(steps, 0, -length):
        span = slice(max(0, end - length), end)
        signal, psi = learning_signal(span).to(out.dtype), derivative(span).to(out.dtype)
        folded = fold_eligibility(
            signal, psi, kappa, beta, rho, unfiltered, out=out[span], following=folded
        )
    assert folded is not None
    return folded._replace(post=out)
