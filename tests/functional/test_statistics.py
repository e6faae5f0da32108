"""Statistics of an update in plain torch and in the compiled kernel, against a loop."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_accum.functional.update_statistics import (
    AVERAGED,
    spike_counts,
    update_statistics,
)
from lightning_accum.sparse.update_statistics import fast_statistics

FORMS = [update_statistics, fast_statistics]
forms = pytest.mark.parametrize("measure", FORMS, ids=["plain", "fast"])
SHAPES = [(15,), (16,), (17,), (40, 70), (1024,), (2, 3, 171)]


def norm(values):
    return math.hypot(*filter(math.isfinite, values))


def size(values):
    return sum(abs(value) for value in values if math.isfinite(value))


def naive(before, after, pos, neg, lower, upper):
    delta, count = [a - b for a, b in zip(after, before, strict=True)], max(len(after), 1)
    moved, base, both = norm(delta), norm(before), size(pos) + size(neg)
    at_lower = sum(lower is not None and a <= lower for a in after) / count
    at_upper = sum(upper is not None and a >= upper for a in after) / count
    return {
        "update_norm": moved, "weight_norm": norm(after),
        "ratio": (moved / base if base else math.inf) if moved else 0.0, "pos_norm": norm(pos),
        "neg_norm": norm(neg), "balance": (size(pos) - size(neg)) / both if both else 0.0,
        "at_lower": at_lower, "at_upper": at_upper, "at_bound": at_lower + at_upper,
        "zero_share": delta.count(0.0) / count,
        "nonfinite": sum(not math.isfinite(value) for value in (*delta, *pos, *neg)),
    }  # fmt: skip


@forms
@settings(max_examples=150, derandomize=True)
@given(
    shape=st.one_of(st.lists(st.integers(0, 4), max_size=3), st.sampled_from(SHAPES)),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16]),
    limits=st.sampled_from([(None, None), (0.0, None), (None, 1.0), (-0.2, 0.9), (-1.0, 0.0)]),
    missing=st.sets(st.sampled_from([2, 3])), zeros=st.sets(st.integers(0, 3), max_size=3),
    bad=st.sampled_from([None, None, math.nan, math.inf, -math.inf]), place=st.integers(0, 3),
    transposed=st.booleans(), seed=st.integers(0, 2**16),
)  # fmt: skip
def test_equals_a_loop(measure, shape, dtype, limits, missing, zeros, bad, place, transposed, seed):
    generator = torch.Generator().manual_seed(seed)
    before, pos, neg = (torch.rand(shape, generator=generator).to(dtype) for _ in range(3))
    still = torch.rand(shape, generator=generator) < 0.3
    after = (before + pos - 2 * neg).clamp(-0.2, 0.9).where(~still, before)
    tensors = [before, after, pos, neg]
    for at in zeros:
        tensors[at].zero_()
    if bad is not None and before.numel():
        tensors[place].view(-1)[[-1, 0]] = bad
    tensors = [each.mT if transposed and each.ndim > 1 else each for each in tensors]
    given_ = [None if at in missing else each for at, each in enumerate(tensors)]
    found = measure(*given_, *limits)
    assert list(found) == [*AVERAGED, "nonfinite"]
    if measure is update_statistics:
        wide = torch.promote_types(dtype, torch.float32)
        assert found["update_norm"].dtype == found["pos_norm"].dtype == wide
    values = [
        [0.0] * before.numel() if each is None else each.flatten().tolist() for each in given_
    ]
    ends = [None if end is None else torch.tensor(end, dtype=dtype).item() for end in limits]
    expected = naive(*values, *ends)
    assert {k: float(v) for k, v in found.items()} == pytest.approx(expected, rel=1e-5, abs=1e-6)


@forms
def test_clamped_weights_are_at_the_limit_in_every_dtype(measure):
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        for limit in (0.1, 0.3, 0.7):
            w = torch.tensor([-2.0, 2.0], dtype=dtype).clamp_(-limit, limit)
            found = measure(w, w, lower=-limit, upper=limit)
            assert found["at_lower"] == found["at_upper"] == 0.5, (dtype, limit)


def test_nothing_is_read_by_the_host():
    # A tensor on the meta device has no values: reading one raises.
    w = torch.ones(3, device="meta", requires_grad=True)
    found = update_statistics(w, w + 1, w, w, 0.0, 1.0)
    assert all(not value.requires_grad for value in found.values())


@forms
def test_what_makes_no_sense_is_rejected_and_parts_have_any_shape(measure):
    w = torch.ones(1)
    with pytest.raises(ValueError, match=r"shape \(1,\), as `before`. Found `after.shape"):
        measure(w, torch.ones(2))
    with pytest.raises(TypeError, match="lower"):
        measure(w, w, lower="0")
    with pytest.raises(TypeError, match="pos"):
        measure(w, w, pos=[1.0])
    with pytest.raises(ValueError, match=r"shape \[T, B, ...\]"):
        spike_counts(torch.ones(3, 4))
    assert measure(w, w, torch.ones(4))["pos_norm"] == 2.0


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
