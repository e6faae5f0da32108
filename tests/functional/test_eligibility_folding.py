"""The folded eligibility is e-prop's sum over synapses, exactly; and it says what does not fit."""

import pytest
import torch
from eprop_reference import eprop
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum.functional.traces import fold_eligibility


def drawn(seed, steps, batch=2, pre=4, post=3):
    """Learning signals, pseudo-derivatives and traces of the input."""
    generator = torch.Generator().manual_seed(seed)
    options = {"generator": generator, "dtype": torch.float64}
    return (
        torch.randn(steps, batch, post, **options),
        torch.rand(steps, batch, post, **options),
        torch.rand(steps, batch, pre, **options),
    )


decays = st.floats(0, 1)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 99), steps=st.integers(1, 12), share=st.sampled_from([0.0, 0.5]),
    kappa=decays, beta=st.sampled_from([0.0, 0.3, 1.7, -0.5]), rho=decays,
)  # fmt: skip
def test_it_is_the_sum_over_synapses_also_after_a_cut(seed, steps, share, kappa, beta, rho):
    signal, psi, eps = drawn(seed, steps)
    cut, kept = int(share * steps), (signal.clone(), psi.clone())
    whole, *_ = eprop(signal, psi, eps, kappa, beta, rho)
    first, filtered, adapted = eprop(signal[:cut], psi[:cut], eps[:cut], kappa, beta, rho)
    found = fold_eligibility(signal[cut:], psi[cut:], kappa, beta, rho)
    second = torch.einsum("tbj,tbi->bji", found.post, eps[cut:])
    second += found.filtered[..., None] * filtered + found.adaptation[..., None] * adapted
    torch.testing.assert_close(first + second, whole, rtol=0, atol=1e-10)
    out = torch.full_like(found.post, torch.nan)
    assert fold_eligibility(signal[cut:], psi[cut:], kappa, beta, rho, out=out).post is out
    torch.testing.assert_close((out, signal, psi), (found.post, *kept))


def test_what_does_not_fit_is_rejected():
    signal = torch.rand(6, 2, 3)
    for psi, words in ((signal[:5], "one shape"), (torch.rand(()), "at least one step")):
        with pytest.raises((TypeError, ValueError), match=words):
            fold_eligibility(signal if psi.ndim else psi, psi)
