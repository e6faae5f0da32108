"""Constraints and bounds: what holds after an update, and which limits are refused."""

import copy

import pytest
import torch
from round_trips import by_pickle
from subtests import turns
from torch import nn
from torch.utils.hooks import RemovableHandle

import lightning_accum as la


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
