"""Constraints and bounds: what holds after an update, and which limits are refused."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from round_trips import by_pickle
from subtests import turns
from torch import nn
from torch.nn.utils import prune
from torch.utils.hooks import RemovableHandle

import lightning_accum as la
from lightning_accum.nn import SparseLinear


def made(*names):
    """A layer whose weights are all a half, and its updater."""
    fc = nn.Linear(2, 2)
    for param in fc.parameters():
        nn.init.constant_(param, 0.5)
    return fc, la.Updater(fc, *names)


def test_run_after_applying_on_what_was_applied_and_on_the_named_parameters_alone():
    fc, updater = made()
    updater.register_constraint(la.Clamp(max=0.1))
    updater.register_constraint(la.Clamp(0.0, 0.05), "weight")
    updater()
    updater.bias = torch.ones(2)
    updater()
    assert fc.weight.tolist() == [[0.5, 0.5]] * 2
    assert fc.bias.tolist() == pytest.approx([0.1, 0.1])
    updater.weight = torch.ones(2, 2)
    updater()
    assert fc.weight.flatten().tolist() == pytest.approx([0.05] * 4)
    assert fc.bias.tolist() == pytest.approx([0.1, 0.1])


def test_run_in_the_order_of_their_registration_until_removed():
    fc, updater = made("weight")
    first = updater.register_constraint(la.Clamp(0.0, 0.75))
    updater.register_constraint(la.Normalize(1.0, order=1))
    updater.weight = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    updater()
    assert fc.weight[0].tolist() == pytest.approx([0.4, 0.6])
    first.remove()
    updater.weight = torch.tensor([[0.0, 3.4], [0.0, 0.0]])
    updater()
    assert fc.weight[0].tolist() == pytest.approx([0.4 / 4.4, 4.0 / 4.4])


def test_one_that_raises_does_not_apply_the_update_again():
    fc, updater = made()
    updater.register_constraint(la.Normalize())
    updater.bias = torch.ones(2)
    with pytest.raises(
        ValueError, match=r'incoming dimensions.*`register_constraint\(fn, "weight"\)`'
    ):
        updater()
    updater()
    assert fc.bias.tolist() == [1.5, 1.5]


@pytest.mark.parametrize("through", [copy.deepcopy, by_pickle])
def test_are_copied_with_the_updater_and_stay_beside_new_ones(through, monkeypatch):
    _, updater = made("weight")
    monkeypatch.setattr(RemovableHandle, "next_id", 0)
    updater.register_constraint(la.Clamp(max=0.75))
    # Another process counts from zero again.
    monkeypatch.setattr(RemovableHandle, "next_id", 0)
    twin, (fc, _) = through(updater), made()
    twin.bind(fc)
    twin.register_constraint(la.Clamp(min=0.6), "weight")
    twin.weight = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    twin()
    assert fc.weight.tolist() == [[0.75, pytest.approx(0.6)], [pytest.approx(0.6)] * 2]
    assert twin.limits("weight") == (0.6, 0.75)
    assert updater.limits("weight") == (None, 0.75)


@turns(
    "call, error, words",
    [
        (lambda u: u.register_constraint(0.5), TypeError, r"Argument `fn`.*Found `float`"),
        (lambda u: u.register_constraint(la.Clamp), TypeError,
         r"Found the class `Clamp`: pass .* `Clamp\(0.0, 1.0\)`"),
        (lambda u: u.register_constraint(la.Clamp(0.0), "bias"), AttributeError, "Found `bias`"),
        (lambda u: u.register_constraint(la.Clamp(0.0, 0.0)), ValueError,
         r"Found `Clamp\(min=0.0, max=0.0\)`, which sets all"),
        (lambda u: u.register_constraint(lambda w: w.clamp(max=0.1)), TypeError,
         "should change the parameter in place"),
        (lambda u: u(scale={"wieght": 0.1}), AttributeError, "wieght"),
    ],
)  # fmt: skip
def test_what_is_refused_changes_nothing(call, error, words):
    fc, updater = made("weight")
    with pytest.raises(error, match=words):
        call(updater)
    assert updater.changes.constraints.of("weight") == []
    updater.weight = torch.ones(2, 2)
    updater()
    assert fc.weight.tolist() == [[1.5, 1.5]] * 2


@pytest.mark.parametrize("other", [la.Clamp(2.0, 3.0), la.Clamp(min=1.0), la.Clamp(max=0.0)])
@pytest.mark.parametrize("name", [(), ("weight",)])
def test_limits_that_no_two_values_satisfy_are_rejected(other, name):
    _, updater = made()
    first = updater.register_constraint(la.Clamp(0.0, 1.0), "weight")
    with pytest.raises(ValueError, match=r"Found `Clamp\(min=.*` and `Clamp\(min=0.0, max=1.0"):
        updater.register_constraint(other, *name)
    assert updater.changes.constraints.of("weight") == [la.Clamp(0.0, 1.0)]
    updater.register_constraint(other, "bias")
    first.remove()
    updater.register_constraint(other, "weight")


APART = [la.Clamp(0.5, 2.0), la.Clamp(max=0.0), la.Clamp(min=0.7)]
OVER = [la.Clamp(0.0, 1.0), la.Clamp(-1.0, 0.2), la.Clamp(min=0.2), la.Clamp(max=9)]


@pytest.mark.parametrize("clamp", [*APART, *OVER])
def test_only_limits_that_overlap_with_those_of_a_bound_are_taken(clamp):
    fc, updater = made()
    updater.weight.fullbound("power", 0.5, 0.0, power=1.0)
    if clamp in APART:
        words = r"Found `Clamp\(min=.* bounds of `weight` .* 0.0 to 0.5"
        with pytest.raises(ValueError, match=words):
            updater.register_constraint(clamp)
        assert updater.changes.constraints.of("weight") == []
    updater.register_constraint(clamp, "bias" if clamp in APART else "weight")
    updater.weight = torch.ones(2, 2)
    updater()
    lower, upper = updater.limits("weight")
    assert lower is not None or upper is not None
    assert torch.equal(fc.weight, fc.weight.clamp(lower, upper))


def test_a_bound_that_was_set_after_the_constraint_is_rejected_before_anything_changes():
    fc, updater = made("weight")
    updater.register_constraint(la.Clamp(0.6, 1.0))
    updater.weight.upperbound("power", 0.6, power=1.0)
    updater.weight = torch.ones(2, 2)
    with pytest.raises(ValueError, match=r"bounds of `weight` that keep it from -inf to 0.6: corr"):
        updater()
    assert fc.weight.tolist() == [[0.5, 0.5]] * 2
    updater.weight.upperbound("power", 1.0, power=1.0)
    updater()
    assert fc.weight.tolist() == [[1.0, 1.0]] * 2


def test_constraints_of_the_users_own():
    class Halved:
        weight_limits = (None, 0.5)

        def __call__(self, param):
            return param[1:].mul_(0.5)  # the part that it changed

    fc, updater = made("weight")
    updater.register_constraint(lambda param: None)
    assert updater.limits("weight") == (None, None)
    updater.register_constraint(Halved())
    updater.register_constraint(la.Clamp(0.0))
    assert updater.limits("weight") == (0.0, 0.5)
    updater.weight = torch.ones(2, 2)
    updater()
    assert fc.weight.tolist() == [[1.5, 1.5], [0.75, 0.75]]


def test_hold_for_the_parameters_that_the_updater_has_when_they_are_registered():
    fc, _ = made()
    la.attach_updater(fc, "bias").register_constraint(la.Clamp(0.6, 0.7))
    updater = la.attach_updater(fc, "weight")  # as a rule does that trains it
    updater.weight, updater.bias = torch.ones(2, 2), torch.ones(2)
    updater()
    assert fc.weight.tolist() == [[1.5, 1.5]] * 2
    assert fc.bias.tolist() == pytest.approx([0.7, 0.7])
    assert [updater.limits(name) for name in updater.names] == [(0.6, 0.7), (None, None)]
    module = nn.Module()  # whose updater has no parameter at first
    module.register_buffer("weight", torch.full((2,), 0.5))
    updater = la.attach_updater(module)
    updater.register_constraint(la.Clamp(0.0, 1.0))
    updater.add("weight")
    updater.weight = torch.ones(2)
    updater()
    assert module.weight.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(("dtype", "size", "scale"), [
    (torch.float16, 1e6, 1.0), (torch.float32, 1e30, 1e30),
])  # fmt: skip
def test_what_overflows_only_when_it_is_applied(dtype, size, scale):
    fc = nn.Linear(1, 1, bias=False, dtype=dtype)
    updater = la.attach_updater(fc)
    updater.weight = torch.full((1, 1), size)
    with pytest.raises(la.NonFiniteUpdateError):
        updater(scale=scale)
    assert torch.isfinite(fc.weight).all()


def test_a_constraint_is_tried_on_a_copy():
    fc, updater = made()
    tried = []

    def scale(param):
        tried.append(tuple(param.shape))
        param.mul_(2.0)

    updater.register_constraint(scale)
    updater.register_constraint(scale, "bias")
    assert tried == [(2, 2), (2,), (2,)]
    assert all((param == 0.5).all() for param in fc.parameters())


def test_a_constraint_that_weights_do_not_fit_yet():
    _, updater = made("weight")

    def large(param):
        if (param <= 0.5).any():
            raise ArithmeticError

    updater.register_constraint(large)
    updater.weight = torch.ones(2, 2)
    updater()
    updater.weight = -torch.ones(2, 2) * 3
    with pytest.raises(ArithmeticError):
        updater()


def test_of_a_bounded_part_nan_is_seen_and_a_bound_has_to_return():
    acc = la.Accumulator()
    acc.fullbound("power", 1.0, 0.0, power=1.0)
    acc.pos = torch.tensor([torch.nan, -1.0])
    assert acc.update(torch.full((2,), 0.5)).isnan().tolist() == [True, False]
    acc.upperbound(lambda param, update, limit: None, 1.0)
    with pytest.raises(TypeError, match=r"should give a tensor of the parameter's shape \(2,\)"):
        acc.update(torch.ones(2))


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("view", [False, True])
def test_a_full_bound_may_return_what_it_was_given(which, view):
    acc, param = la.Accumulator(), torch.full((2,), 3.0)

    def bound(param, pos, neg, max, min):
        given = (param, pos, neg)[which]
        return given[:] if view else given

    acc.fullbound(bound, 1.0, 0.0)
    acc.pos, acc.neg = torch.ones(2), torch.full((2,), 2.0)
    acc.update(param).zero_()
    assert [t.tolist() for t in (param, acc.pos, acc.neg)] == [[3.0] * 2, [1.0] * 2, [2.0] * 2]


def test_other_bounds_than_those_that_are_loaded_are_told():
    saved, other, same, fresh = (la.Accumulator(name="weight") for _ in range(4))
    for acc, limit in ((saved, 1.0), (other, 0.5), (same, 1.0)):
        acc.upperbound("power", limit, power=2.0)
    for silent in (same, fresh):
        silent.load_state_dict(saved.state_dict())
    with pytest.warns(
        UserWarning,
        match=r"`weight` .*Found power\(0\.5,\) \(upper\).*saved .*\(1\.0,\) \(upper\)",
    ):
        other.load_state_dict(saved.state_dict())
    assert other.limits == (None, 1.0)
    other.load_state_dict(la.Accumulator(name="weight").state_dict())  # which has none


@pytest.mark.parametrize("top", [-0.5, 0.0])
@pytest.mark.parametrize("first", ["upper", "lower"])
def test_an_upper_limit_that_is_not_above_the_lower_one(first, top):
    limits = {"upper": top, "lower": 0.0}
    second = "lower" if first == "upper" else "upper"
    acc = la.Accumulator(name="weight")
    getattr(acc, f"{first}bound")("power", limits[first])
    with pytest.raises(ValueError, match=rf"Found `max = {top}`, `min = 0.0`"):
        getattr(acc, f"{second}bound")("power", limits[second])
    assert acc.limits == ((None, top) if first == "upper" else (0.0, None))
    getattr(acc, f"{first}bound")(None)
    getattr(acc, f"{second}bound")("power", limits[second])  # as the message says
    acc.upperbound("power", 1.0), acc.lowerbound("power", 0.0)
    state = acc.get_extra_state()
    state["bounds"]["upper"]["limits"] = [-1.0]
    with pytest.raises(RuntimeError, match=r"Found `max = -1.0`, `min = 0.0`"):
        acc.set_extra_state(state)
    assert acc.limits == (0.0, 1.0)
    acc.fullbound("power", -1.0, -2.0)  # replaces it, so that there is nothing to compare
    acc.upperbound("power", -3.0)


# ---------------------------------------------------------------------------- norms and limits
@settings(deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    order=st.sampled_from([1, 2, 3, 1.5, math.inf]),
    norm=st.floats(0.1, 100),
    seed=st.integers(0, 2**16),
)
def test_every_output_gets_the_norm_and_keeps_its_direction(shape, order, norm, seed):
    w = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    before = w.clone()
    la.Normalize(norm, order)(w)
    for row, old in zip(w.flatten(1).tolist(), before.flatten(1).tolist(), strict=True):
        size = [abs(x) for x in old]
        p_norm = max(size) if order == math.inf else sum(x**order for x in size) ** (1 / order)
        assert row == pytest.approx([x / p_norm * norm for x in old], rel=1e-10)


@turns("make, x, unit", [
    (lambda: nn.Linear(3, 4), torch.rand(1, 3), -1),
    (lambda: SparseLinear(6, 4, density=0.5), torch.rand(1, 6), -1),
    (lambda: nn.Conv1d(4, 6, 2, groups=2), torch.rand(1, 4, 3), 1),
    (lambda: nn.ConvTranspose1d(3, 4, 2), torch.rand(1, 3, 3), 1),
    (lambda: nn.ConvTranspose2d(4, 6, 2, groups=2), torch.rand(1, 4, 3, 3), 1),
    (lambda: nn.ConvTranspose3d(2, 3, 2, bias=False), torch.rand(1, 2, 2, 2, 2), 1),
    (lambda: nn.Embedding(6, 4), torch.arange(6), -1),
    (lambda: nn.EmbeddingBag(6, 4, mode="sum"), torch.arange(6)[None], -1),
])  # fmt: skip
def test_the_weights_that_lead_to_an_output_have_the_norm(make, x, unit):
    pruned = prune.identity(make(), "weight")
    for connection, name in (make(), "weight"), (pruned, "weight_orig"):
        if name == "weight_orig" and isinstance(connection, SparseLinear):
            continue
        updater, weight = la.attach_updater(connection, name), getattr(connection, name)
        updater.register_constraint(la.Normalize(2.0, order=2), name)
        setattr(updater, name, torch.rand_like(weight))
        updater()
        for output in connection(x).unbind(unit):
            (by_weight,) = torch.autograd.grad(output.sum(), weight, retain_graph=True)
            torch.testing.assert_close(weight[by_weight != 0].norm(), torch.tensor(2.0))


@pytest.mark.parametrize("order", [1, 2, math.inf])
def test_rows_without_a_norm_stay_finite(order):
    for norm in (1.0, 1e3, 1e30):
        w = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        la.Normalize(norm, order)(w)
        assert w[0].tolist() == [0.0, 0.0], norm
        assert w[1].isfinite().all(), norm
    for tiny in (1e-25, 1e-38, 1e-44):
        # The squares of 1e-25 are zero in float32, and 1e3 / 4e-38 is infinite.
        w = torch.full((1, 4), tiny)
        la.Normalize(1e3, order)(w)
        assert w.max() <= 1e3, tiny
    assert w.max() < 1e-40  # too small to be scaled


def test_weights_are_written_in_place_without_a_graph_and_rounded_once():
    p = nn.Parameter(torch.tensor([[2.0, -6.0]]))
    alias = p.data
    la.Normalize()(p), la.Clamp(min=-0.5)(p)
    assert alias.tolist() == [[0.25, -0.5]]
    assert p.is_leaf
    assert p.requires_grad
    w = torch.rand(8, 100, generator=torch.Generator().manual_seed(0)).bfloat16()
    wide = w.float()
    la.Normalize(78.4)(w), la.Normalize(78.4)(wide)
    assert torch.equal(w, wide.bfloat16())
    assert w.dtype == torch.bfloat16


NUMBERS = (0.0, -1.0, math.nan)
INFINITE = (math.nan, math.inf, -math.inf)
REFUSED = [
    *((la.Normalize, {"norm": each}, "`norm`") for each in (*NUMBERS, math.inf)),
    *((la.Normalize, {"order": each}, "`order`") for each in NUMBERS),
    (la.Clamp, {}, "both be None"),
    (la.Clamp, {"min": 1.0, "max": 0.0}, "`min` should be at most"),
    *((la.Clamp, {n: v}, f"`{n}` should be finite") for v in INFINITE for n in ("min", "max")),
    (la.Normalize(), {"param": torch.ones(2, 2, dtype=torch.long)}, "floating-point"),
    (la.Normalize(), {"param": torch.ones(3)}, "should have incoming dimensions"),
    *(
        (la.Normalize(), {"param": each}, "`param` should be a tensor")
        for each in ([1.0], 1.0, None)
    ),
    (la.Clamp(0.0), {"param": [1.0]}, "`param` should be a tensor"),
]


@turns("call, options, words", REFUSED)
def test_what_makes_no_sense_is_rejected(call, options, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call(**options)
