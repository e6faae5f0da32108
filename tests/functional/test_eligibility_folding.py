"""The folded eligibility is e-prop's sum over synapses, exactly; and it says what does not fit."""

import pytest
import torch
from eprop_reference import eprop
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum.functional.eprop import fold_eligibility


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
    seed=st.integers(0, 99),
    steps=st.integers(1, 12),
    share=st.sampled_from([0.0, 0.5]),
    kappa=decays,
    beta=st.sampled_from([0.0, 0.3, 1.7, -0.5]),
    rho=decays,
)
def test_it_is_the_sum_over_synapses_also_after_a_cut(seed, steps, share, kappa, beta, rho):
    signal, psi, eps = drawn(seed, steps)
    cut = int(share * steps)
    whole, *_ = eprop(signal, psi, eps, kappa, beta, rho)
    first, filtered, adapted = eprop(signal[:cut], psi[:cut], eps[:cut], kappa, beta, rho)
    found = fold_eligibility(signal[cut:], psi[cut:], kappa, beta, rho)
    second = torch.einsum("tbj,tbi->bji", found.post, eps[cut:])
    second += found.filtered[..., None] * filtered + found.adaptation[..., None] * adapted
    torch.testing.assert_close(first + second, whole, rtol=0, atol=1e-10)


@pytest.mark.parametrize("beta", [0.0, 0.7])
def test_it_may_write_into_memory_that_is_there(beta):
    signal, psi, _ = drawn(0, 6)
    out = torch.empty_like(signal)
    before = signal.clone(), psi.clone()
    found = fold_eligibility(signal, psi, 0.5, beta, 0.9, out=out)
    assert found.post is out
    torch.testing.assert_close(out, fold_eligibility(signal, psi, 0.5, beta, 0.9).post)
    torch.testing.assert_close((signal, psi), before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"derivative": torch.rand(6, 2, 4)}, "one shape"),
        ({"derivative": torch.rand(()), "learning_signal": torch.rand(())}, "at least one step"),
    ],
)
def test_what_does_not_fit_is_rejected(change, message):
    signal, psi, _ = drawn(0, 6)
    options = {"learning_signal": signal, "derivative": psi, **change}
    with pytest.raises((TypeError, ValueError), match=message):
        fold_eligibility(**options)
