"""The interface of the source's Accumulator, call by call."""

import pytest
import torch
from torch import nn

from lightning_accum import Accumulator

W = torch.tensor([0.25, 0.75])
ONE = torch.ones(2)


def pending():
    acc = Accumulator()
    acc.pos, acc.neg = ONE, 2 * ONE
    return acc


def test_is_a_module():
    assert isinstance(Accumulator(), nn.Module)


def test_pos_and_neg_are_none_then_what_was_appended():
    acc = Accumulator()
    assert acc.pos is None
    assert acc.neg is None
    acc.pos = torch.tensor([1.0, 2.0])
    acc.pos = torch.tensor([0.5, 0.5])
    assert acc.pos.tolist() == [1.5, 2.5]
    assert acc.neg is None
    acc.neg = torch.tensor([3.0, 0.0])
    assert acc.neg.tolist() == [3.0, 0.0]
    assert acc.pos.tolist() == [1.5, 2.5]


def test_none_is_ignored():
    acc = pending()
    acc.pos, acc.neg = None, None
    assert (acc.pos.tolist(), acc.neg.tolist()) == ([1.0, 1.0], [2.0, 2.0])


def test_del_empties_one_part():
    acc = pending()
    del acc.pos
    assert acc.pos is None
    assert acc.neg.tolist() == [2.0, 2.0]
    del acc.neg
    assert acc.neg is None
    del acc.neg  # an empty one too
    assert acc.update(W) is None


def test_clear_takes_any_keyword():
    acc = pending()
    acc.clear(keep=False)
    assert acc.pos is None
    assert acc.neg is None


def test_update_is_the_difference_and_applies_nothing():
    acc, w = pending(), W.clone()
    for _ in range(2):
        assert acc.update(w).tolist() == [-1.0, -1.0]
    assert torch.equal(w, W)
    assert Accumulator().update(w) is None


@pytest.mark.parametrize(("part", "expected"), [("pos", 3.0), ("neg", -3.0)])
def test_update_of_one_part_alone(part, expected):
    acc = Accumulator()
    setattr(acc, part, 3 * ONE)
    assert acc.update(W).tolist() == [expected, expected]


def test_calling_returns_the_parameter_with_the_update_applied():
    acc, w = pending(), W.clone()
    assert acc(w).tolist() == [-0.75, -0.25]
    assert torch.equal(w, W)
    assert torch.equal(Accumulator()(w), W)


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (None, 6.0),
        (torch.sum, 6.0),
        (torch.mean, 2.0),
        (torch.amax, 3.0),
        (torch.amin, 1.0),
        (torch.prod, 6.0),
        (lambda stacked, dim: stacked.select(dim, 1), 3.0),
    ],
)
def test_reduction(fn, expected):
    acc = Accumulator()
    acc.reduction(torch.mean)
    acc.reduction(fn)
    acc.pos, acc.pos, acc.pos = ONE, 3 * ONE, 2 * ONE
    assert acc.pos.tolist() == [expected, expected]
    if fn is None:
        acc.clear()
        acc.reduction()
        acc.pos, acc.pos = ONE, ONE
        assert acc.pos.tolist() == [2.0, 2.0]


def test_upperbound_is_on_the_positive_part_alone():
    acc = pending()
    acc.upperbound("multiplicative", 1.0)
    torch.testing.assert_close(acc.update(W), (1 - W) - 2)
    acc.upperbound(None)
    assert acc.update(W).tolist() == [-1.0, -1.0]


def test_lowerbound_is_on_the_negative_part_alone():
    acc = pending()
    acc.lowerbound("multiplicative", 0.0)
    torch.testing.assert_close(acc.update(W), 1 - 2 * W)
    acc.lowerbound(None)
    assert acc.update(W).tolist() == [-1.0, -1.0]


def test_fullbound_is_on_both_with_its_keywords():
    acc = pending()
    acc.fullbound("power", 1.0, 0.0, power=2.0)
    torch.testing.assert_close(acc.update(W), (1 - W) ** 2 - 2 * W**2)
    torch.testing.assert_close(acc(W), W + (1 - W) ** 2 - 2 * W**2)
    for part in ("pos", "neg"):  # with one part alone the other counts as zeros
        alone = Accumulator()
        alone.fullbound("power", 1.0, 0.0, power=2.0)
        setattr(alone, part, ONE)
        torch.testing.assert_close(alone.update(W), (1 - W) ** 2 if part == "pos" else -(W**2))
    acc.fullbound(None)
    assert acc.update(W).tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("half", ["upper", "lower"])
def test_half_bounds_replace_a_full_one(half):
    acc = pending()
    acc.fullbound("multiplicative", 1.0, 0.0)
    if half == "upper":
        acc.upperbound("multiplicative", 1.0)
        torch.testing.assert_close(acc.update(W), (1 - W) - 2)
    else:
        acc.lowerbound("multiplicative", 0.0)
        torch.testing.assert_close(acc.update(W), 1 - 2 * W)


@pytest.mark.parametrize("half", ["upperbound", "lowerbound"])
def test_half_bounds_of_none_remove_a_full_one(half):
    acc = pending()
    acc.fullbound("multiplicative", 1.0, 0.0)
    getattr(acc, half)(None)
    assert acc.update(W).tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("bound", ["multiplicative", None])
def test_a_full_bound_replaces_half_ones_and_none_removes_them(bound):
    acc = pending()
    acc.upperbound("multiplicative", 9.0)
    acc.lowerbound("multiplicative", -9.0)
    torch.testing.assert_close(acc.update(W), (9 - W) - 2 * (W + 9))
    acc.fullbound(bound, *(() if bound is None else (1.0, 0.0)))
    expected = -ONE if bound is None else (1 - W) - 2 * W
    torch.testing.assert_close(acc.update(W), expected)


def test_a_missing_limit_is_an_error_when_set():
    acc = pending()
    acc.fullbound("multiplicative", 1.0, 0.0)
    before = acc.update(W)
    for call in (
        lambda: acc.upperbound("multiplicative"),
        lambda: acc.lowerbound("multiplicative", None),
        lambda: acc.fullbound("multiplicative"),
        lambda: acc.fullbound("multiplicative", 1.0),
        lambda: acc.fullbound("multiplicative", None, 0.0),
    ):
        with pytest.raises(ValueError, match=r"Argument `(max|min)` .* Found `(max|min) = None`"):
            call()
    assert torch.equal(acc.update(W), before)


def test_bounds_of_the_users_own_get_limits_by_position_and_keywords():
    seen = []

    def half(param, update, limit, **kw):
        seen.append((param.tolist(), limit, kw))
        return update * 0

    acc = pending()
    acc.upperbound(half, 5.0, max=7.0)  # a keyword of the bound may have any name
    acc.lowerbound(half, -5.0, min=8.0)
    assert acc.update(W).tolist() == [0.0, 0.0]
    assert seen == [(W.tolist(), 5.0, {"max": 7.0}), (W.tolist(), -5.0, {"min": 8.0})]
