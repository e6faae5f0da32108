"""The eligibility propagation of adaptive neurons, folded into one postsynaptic signal."""

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum._checks import check_tensors
from lightning_accum.functional.traces import reverse_trace

# In e-prop's sum over a window everything but the trace of the input belongs to the neuron, and is
# linear. So the sum can be taken backwards in time, for each neuron instead of each synapse.


class Eligibility(NamedTuple):
    """The activity of a window as its learning signals fold it."""

    post: Tensor  # [T, ...] the postsynaptic signal q
    filtered: Tensor  # [...] κ G(0), the factor of the filtered eligibility of the window before
    adaptation: Tensor  # [...] μ(0), the factor of ε^a that the window before left


def fold_eligibility(
    learning_signal: Tensor,
    derivative: Tensor,
    kappa: float = 0.0,  # decay of the readout's filter per step
    beta: float = 0.0,  # strength of the adaptation
    rho: float = 0.0,  # decay of the adaptation per step
    unfiltered: Tensor | None = None,  # R, which broadcasts to [T, ...]
    out: Tensor | None = None,  # to write q to
    following: Eligibility | None = None,  # of the steps behind these
) -> Eligibility:
    r"""Folds learning signals and pseudo-derivatives into one postsynaptic signal.

    .. math::
        G(t) = \kappa\, G(t + 1) + L(t), \qquad
        q(t) = \psi(t) \left(G(t) + R(t) + \mu(t + 1)\right), \qquad
        \mu(t) = \rho\, \mu(t + 1) - \beta\, q(t)

    with :math:`G` and :math:`\mu` zero behind the last step, unless more steps follow. The change
    of :class:`~lightning_accum.EProp` is :math:`\sum_t q_j(t)\, \bar x_i(t)`.
    """
    check_tensors(learning_signal=learning_signal, derivative=derivative)
    if learning_signal.shape != derivative.shape or not derivative.ndim or not len(derivative):
        raise ValueError(
            "Arguments `learning_signal` and `derivative` should have one shape [T, ...], with at"
            f" least one step. Found {list(learning_signal.shape)} and {list(derivative.shape)}."
        )
    behind = None if following is None else following.filtered
    post = reverse_trace(learning_signal, kappa, out, behind)
    filtered = kappa * post[0]
    if unfiltered is not None:
        check_tensors(unfiltered=unfiltered)
        post += unfiltered
    mu = torch.zeros_like(filtered) if following is None else following.adaptation.clone()
    if beta == 0:
        return Eligibility(post.mul_(derivative), filtered, mu)
    for now, psi in zip(reversed(post.unbind(0)), reversed(derivative.unbind(0)), strict=True):
        now.add_(mu).mul_(psi)
        mu.mul_(rho).sub_(now, alpha=beta)
    return Eligibility(post, filtered, mu)


class Remaining(NamedTuple):
    """The eligibility at a window's end, as factors of its activity and of the windows before."""

    filtered: Eligibility  # makes the filtered eligibility, the sum of κ^(T - 1 - t) e(t)
    adaptation: Eligibility  # makes the adaptation's part, ε^a(T)


def fold_remaining(derivative: Tensor, kappa: float, beta: float, rho: float) -> Remaining:
    """Folds the eligibility at the end of a window, for each neuron."""
    # That of a synapse is Σ_t q_j(t) ε_i(t), and what the window before left, times its factors.
    end = torch.zeros_like(derivative)
    end[-1] = 1.0
    filtered = fold_eligibility(end, derivative, kappa, beta, rho)
    share = torch.ones_like(derivative[0])
    post = torch.empty_like(derivative)
    for now, psi in zip(reversed(post.unbind(0)), reversed(derivative.unbind(0)), strict=True):
        torch.mul(psi, share, out=now)
        share = share * (rho - beta * psi)
    return Remaining(filtered, Eligibility(post, torch.zeros_like(share), share))
