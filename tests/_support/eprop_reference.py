"""E-prop as the paper writes it: a trace for each synapse, step by step."""

import math

import torch


def low_pass(values, tc):
    """The sum over earlier steps, each of which decays with a time constant in steps."""
    rows = [values[0]]
    for now in values[1:]:
        rows.append(math.exp(-1 / tc) * rows[-1] + now)
    return torch.stack(rows)


def eprop(signal, psi, eps, kappa, beta, rho):
    """The sum of ``L e`` over steps, the filtered eligibility, and the adaptation's part of it.

    ``eps`` are traces of the input, ``[T, B, in]``, or what each adds, ``[T, B, out, in]``.
    """
    eps = eps if eps.ndim == 4 else eps[:, :, None]
    total = signal.new_zeros(signal.shape[1], signal.shape[2], eps.shape[-1])
    filtered, adapted = torch.zeros_like(total), torch.zeros_like(total)
    for now, p, e in zip(signal, psi[..., None], eps, strict=True):
        filtered = kappa * filtered + p * (e - beta * adapted)
        adapted = p * e + (rho - beta * p) * adapted
        total += now[..., None] * filtered
    return total, filtered, adapted
