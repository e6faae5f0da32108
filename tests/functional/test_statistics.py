import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum.functional.update_statistics import AVERAGED, spike_counts, update_statistics


def numbers(found):
    return {name: float(value) for name, value in found.items()}


def test_what_is_missing_reads_as_zero():
    zero, one = torch.zeros(3), torch.ones(3)
    found = numbers(update_statistics(one, 2 * one))
    for name in ("pos_norm", "neg_norm", "balance", "at_lower", "at_upper", "at_bound"):
        assert found[name] == 0.0
    for *parts, balance in ((one, None, 1.0), (None, one, -1.0), (one, one, 0.0), (zero, zero, 0)):
        assert update_statistics(zero, zero, *parts)["balance"] == balance
    assert update_statistics(zero, zero)["ratio"] == 0.0
    assert update_statistics(zero, zero + 1)["ratio"] == math.inf


def test_nonfinite_values_are_counted_and_left_out_of_the_norms():
    nan, inf = math.nan, math.inf
    before = torch.tensor([1.0, 1.0, 1.0, 1.0])
    after = torch.tensor([4.0, 5.0, nan, -inf])
    pos = torch.tensor([3.0, inf, 4.0, 0.0])
    found = numbers(update_statistics(before, after, pos, torch.full((4,), nan)))
    assert found["nonfinite"] == 2 + 1 + 4
    assert found["update_norm"] == found["pos_norm"] == 5.0
    assert found["neg_norm"] == 0.0
    assert found["balance"] == 1.0
    assert found["zero_share"] == 0.0
    assert all(math.isfinite(value) for value in found.values())


def test_clamped_weights_are_at_the_limit_in_every_dtype():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for limit in (0.1, 0.3, 0.7):
            w = torch.tensor([-2.0, 2.0], dtype=dtype).clamp_(-limit, limit)
            found = update_statistics(w, w, lower=-limit, upper=limit)
            assert found["at_lower"] == found["at_upper"] == 0.5, (dtype, limit)


def test_low_precision_is_measured_in_float32():
    before = torch.zeros(1000, dtype=torch.bfloat16)
    after = before + 1
    found = update_statistics(before, after, after, after)
    assert found["update_norm"].dtype == torch.float32
    # Bfloat16 has eight bits: neither this norm nor this sum is one of its numbers.
    torch.testing.assert_close(found["update_norm"], torch.tensor(1000.0).sqrt())
    torch.testing.assert_close(found["pos_norm"], torch.tensor(1000.0).sqrt())


@settings(deadline=None)
@given(shape=st.lists(st.integers(0, 4), max_size=3), seed=st.integers(0, 2**16))
def test_equals_a_loop(shape, seed):
    generator = torch.Generator().manual_seed(seed)
    before, pos, neg = (torch.rand(shape, generator=generator).double() for _ in range(3))
    after = (before + pos - neg).clamp(0, 1)
    found = numbers(update_statistics(before, after, pos, neg, 0.0, 1.0))
    assert list(found) == [*AVERAGED, "nonfinite"]
    b, a, p, n = (t.flatten().tolist() for t in (before, after, pos, neg))
    size, count = math.dist(a, b), max(len(a), 1)
    base = math.hypot(*b)
    assert found == pytest.approx(
        {
            "update_norm": size,
            "weight_norm": math.hypot(*a),
            "ratio": size / base if base else 0.0,
            "pos_norm": math.hypot(*p),
            "neg_norm": math.hypot(*n),
            "balance": (sum(p) - sum(n)) / (sum(p) + sum(n)) if p else 0.0,
            "at_lower": sum(x == 0 for x in a) / count,
            "at_upper": sum(x == 1 for x in a) / count,
            "at_bound": sum(x in (0, 1) for x in a) / count,
            "zero_share": sum(x == y for x, y in zip(a, b, strict=True)) / count,
            "nonfinite": 0.0,
        },
        rel=1e-6,
        abs=1e-12,
    )


def test_nothing_is_read_by_the_host():
    # A tensor on the meta device has no values: reading one raises.
    w = torch.ones(3, device="meta", requires_grad=True)
    found = update_statistics(w, w + 1, w, w, 0.0, 1.0)
    assert all(not value.requires_grad for value in found.values())


def test_shapes_that_do_not_fit_are_rejected():
    with pytest.raises(ValueError, match=r"one shape. Found `before.shape = \(1,\)`"):
        update_statistics(torch.ones(1), torch.ones(2))
    with pytest.raises(ValueError, match=r"shape \[T, B, ...\]"):
        spike_counts(torch.ones(3, 4))


def test_spikes_of_any_dtype_are_counted_exactly():
    for dtype in (torch.bool, torch.uint8, torch.long, torch.half, torch.float):
        # An odd number above 2048 is none that float16 has.
        spikes = torch.ones(301, 7, 2, 2, dtype=dtype)
        spikes[:, :, 0, 1] = 0
        counts = spike_counts(spikes)
        assert counts.tolist() == [2107.0, 0.0, 2107.0, 2107.0], dtype
        assert counts.dtype == torch.float32
    for steps in (0, 1, 255, 256, 600):
        spikes = torch.rand(steps, 3, 2, 2, generator=torch.Generator().manual_seed(0)) < 0.9
        spikes[:, :, 0, 0] = True  # more than a byte holds
        for view in (spikes, spikes.transpose(1, 2)):
            assert torch.equal(spike_counts(view), spike_counts(view.float())), steps
