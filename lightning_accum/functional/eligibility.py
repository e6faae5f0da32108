"""The eligibility propagation of adaptive neurons, folded into one postsynaptic signal.

In e-prop's sum over a window everything but the trace of the input belongs to the neuron, and
everything is linear. So the sum can be taken the other way round, backwards in time, for each
neuron instead of each synapse, which is exact, and one product.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_accum._checks import check_finite, check_tensors, check_value
from lightning_accum.functional.traces import reverse_trace


class Eligibility(NamedTuple):
    r"""What the learning signals of a window make of its activity.

    Args:
        post: ``[T, ...]`` the postsynaptic signal :math:`q`.
        filtered: ``[...]`` :math:`\kappa\, G(0)`, the factor of the filtered eligibility that the
            window before left.
        adaptation: ``[...]`` :math:`\mu(0)`, the factor of :math:`\varepsilon^a` that the window
            before left.
    """

    post: Tensor
    filtered: Tensor
    adaptation: Tensor


def fold_eligibility(
    learning_signal: Tensor,
    derivative: Tensor,
    kappa: float = 0.0,
    beta: float = 0.0,
    rho: float = 0.0,
    unfiltered: Tensor | None = None,
    out: Tensor | None = None,
    following: Eligibility | None = None,
) -> Eligibility:
    r"""Folds learning signals and pseudo-derivatives into one postsynaptic signal.

    .. math::
        G(t) = \kappa\, G(t + 1) + L(t), \qquad
        q(t) = \psi(t) \left(G(t) + R(t) + \mu(t + 1)\right), \qquad
        \mu(t) = \rho\, \mu(t + 1) - \beta\, q(t)

    with :math:`G` and :math:`\mu` zero behind the last step, unless more steps follow. The change
    that :class:`~lightning_accum.EProp` sums over synapses is :math:`\sum_t q_j(t)\, \bar x_i(t)`.

    Args:
        learning_signal: ``[T, ...]`` :math:`L`, for each neuron.
        derivative: ``[T, ...]`` :math:`\psi`, in the shape of ``learning_signal``.
        kappa: decay of the readout's filter per step, from 0 for none to 1.
        beta: strength of the adaptation, zero for neurons that do not adapt.
        rho: decay of the adaptation per step, from 0 to 1.
        unfiltered: :math:`R`, a learning signal that the readout does not filter, such as that of a
            firing rate; broadcasts to ``[T, ...]``.
        out: ``[T, ...]`` to write :math:`q` to; a new tensor when ``None``.
        following: what the steps behind these were folded to: a window may be folded in parts, the
            last one first.

    Returns:
        The postsynaptic signal and the factors of what the window before left.

    Raises:
        ValueError: if the shapes differ, or a decay is not between 0 and 1.

    Example:
        >>> import torch
        >>> fold_eligibility(torch.tensor([0.0, 0.0, 1.0]), torch.ones(3), kappa=0.5).post
        tensor([0.2500, 0.5000, 1.0000])

    Source:
        Bellec et al. 2020, doi:10.1038/s41467-020-17236-y, eqs. 13, 22 to 25 and 28.
    """
    check_tensors(learning_signal=learning_signal, derivative=derivative)
    check_finite(kappa=kappa, beta=beta, rho=rho)
    for name, decay in (("kappa", kappa), ("rho", rho)):
        check_value(0 <= decay <= 1, name, decay, "a decay per step, from 0 to 1")
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
    r"""What a window leaves for the next one, as factors of its activity and of what came before.

    Args:
        filtered: makes the filtered eligibility :math:`\sum_{t'} \kappa^{T - 1 - t'} e(t')`.
        adaptation: makes the adaptation's part :math:`\varepsilon^a(T)`.
    """

    filtered: Eligibility
    adaptation: Eligibility


def fold_remaining(derivative: Tensor, kappa: float, beta: float, rho: float) -> Remaining:
    r"""Folds the eligibility at the end of a window, for each neuron.

    The filtered eligibility of a synapse at the end is :math:`\sum_t q_j(t)\, \varepsilon_i(t)`,
    and what the window before left, times its factors; the adaptation's part likewise.

    Arguments as for :func:`fold_eligibility`.

    Example:
        >>> import torch
        >>> fold_remaining(torch.ones(3), kappa=0.5, beta=0.0, rho=0.0).filtered.post
        tensor([0.2500, 0.5000, 1.0000])
    """
    check_tensors(derivative=derivative)
    if not derivative.ndim or not len(derivative):
        raise ValueError(
            "Argument `derivative` should have shape [T, ...], with at least one step. Found"
            f" {list(derivative.shape)}."
        )
    end = torch.zeros_like(derivative)
    end[-1] = 1.0
    filtered = fold_eligibility(end, derivative, kappa, beta, rho)
    share = torch.ones_like(derivative[0])
    post = torch.empty_like(derivative)
    for now, psi in zip(reversed(post.unbind(0)), reversed(derivative.unbind(0)), strict=True):
        torch.mul(psi, share, out=now)
        share = share * (rho - beta * psi)
    return Remaining(filtered, Eligibility(post, torch.zeros_like(share), share))
