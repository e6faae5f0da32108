"""What every optimizer has to keep to in all its options; decays and steps of one's own."""

import copy
import gc
import weakref

import pytest
import torch
from optimizer_cases import CASES, OWN, close, give_gradients, parameters, run, same
from round_trips import by_file, by_pickle
from subtests import turns
from torch import nn

from lightning_accum.optim import Adam, AdamWarmup, WeightDecay


class L1(WeightDecay):
    """The document's example of another decay."""

    def __call__(self, param, grad, group):
        return grad + group["weight_decay"] * param.sign()


BUILTINS = (int, float, bool, str, type(None))


# ---------------------------------------------------------------------- copies and checkpoints
@turns("make", CASES.values())
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_a_checkpoint_resumes_bit_for_bit(make, dtype):
    params = parameters(dtype)
    optimizer = make(params, lr=0.02)
    absent = lambda step: (step % 3,)  # noqa: E731
    run(optimizer, params, 11, absent=absent)
    saved = by_file({"params": params, "optimizer": optimizer.state_dict()})
    fresh = [nn.Parameter(p) for p in saved["params"]]
    resumed = make(fresh, lr=5.0)
    resumed.load_state_dict(saved["optimizer"])
    assert resumed.param_groups[0]["lr"] == 0.02
    same(run(resumed, fresh, 9, 11, absent), run(optimizer, params, 9, 11, absent))


@turns("make", CASES.values())
def test_a_state_dict_holds_tensors_and_builtins(make):
    params = parameters()
    optimizer = make(params)
    run(optimizer, params, 3)
    state_dict = optimizer.state_dict()
    kept, fresh = copy.deepcopy(state_dict), parameters()
    other = make(zip("abcde", fresh, strict=True))  # of named parameters
    assert other.param_groups[0]["param_names"] == [*"abcde"]
    other.load_state_dict(
        {**state_dict, "state": {**state_dict["state"], "note": {"text": "kept"}}}
    )
    run(other, fresh, 3)
    assert other.state["note"] == {"text": "kept"}  # what belongs to no parameter
    assert str(state_dict) == str(kept) == str(optimizer.state_dict())
    for state in state_dict["state"].values():
        assert state["step"] == 3
        for value in state.values():
            assert type(value) in (torch.Tensor, *BUILTINS)
            assert not isinstance(value, torch.Tensor) or not value.requires_grad
    for group in state_dict["param_groups"]:
        assert type(group["params"]) is list
        for key in set(group) - {"params", "betas"}:
            assert type(group[key]) in BUILTINS
    assert set(group) == set(make(parameters()).state_dict()["param_groups"][0])


@turns("make", CASES.values())
def test_groups_differ_and_are_the_callers(make):
    params, others = parameters(), parameters()
    groups = [{"params": params[:2], "lr": 0.05}, {"params": params[2:], "betas": [0.5, 0.7]}]
    kept = copy.copy(groups[0]), copy.copy(groups[1])
    optimizer = make(groups)
    assert groups[0] == kept[0]
    assert groups[1] == kept[1]
    alone = [make(others[:2], lr=0.05), make([{"params": others[2:], "betas": (0.5, 0.7)}])]
    for step in range(6):
        give_gradients(params, step)
        give_gradients(others, step)
        optimizer.step()
        for other in alone:
            other.step()
    same(params, others)


@turns("make", CASES.values())
def test_a_rate_as_a_tensor(make):
    params, others = parameters(), parameters()
    rate = torch.tensor([0.02], dtype=torch.float64)
    groups = [{"params": params[:2]}, {"params": params[2:]}]
    optimizer, other = make(groups, lr=rate), make(others, lr=0.02)
    close(run(optimizer, params, 5), run(other, others, 5))
    # a scheduler fills it: each group has its own, and the caller's stays
    optimizer.param_groups[0]["lr"].fill_(0.0)
    assert rate.item() == 0.02
    assert optimizer.param_groups[1]["lr"].item() == 0.02
    before = [p.detach().clone() for p in params]
    run(optimizer, params, 1, 5)
    same(params[:2], before[:2])
    assert not torch.equal(params[2], before[2])


@turns("make", CASES.values())
def test_a_closure_is_called_with_gradients(make):
    weight = nn.Parameter(torch.ones(3))
    optimizer = make([weight])

    def closure():
        optimizer.zero_grad()
        loss = (weight**2).sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 3.0
    assert [optimizer.step(closure).item() for _ in range(8)][-1] < 3.0


@turns("make", CASES.values())
def test_nothing_is_kept_alive(make):
    def live():
        if make not in (CASES["adam"], CASES["radam"], CASES["one-at-a-time"]):
            return 0  # to look at every object takes long
        gc.collect()
        return sum(issubclass(type(o), torch.Tensor) for o in gc.get_objects())

    params = parameters()
    optimizer = make(params)
    run(optimizer, params, 3)
    before = live()
    run(optimizer, params, 5, absent=lambda step: (step % 2,))
    give_gradients(params, 0)
    assert live() <= before
    gone = [weakref.ref(p.grad) for p in params]
    optimizer.zero_grad()
    assert all(ref() is None for ref in gone)
    gone = [weakref.ref(p) for p in params]
    for state in optimizer.state.values():
        gone += [weakref.ref(value) for name, value in state.items() if name != "step"]
    del params, state, optimizer
    gc.collect()
    assert all(ref() is None for ref in gone)


@turns("make_own", [CASES[name] for name in OWN])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_moments_of_narrow_parameters_are_float32(make_own, dtype):
    params = parameters(dtype)
    wide = [nn.Parameter(p.detach().float()) for p in params]
    optimizer, other = make_own(params), make_own(wide)
    for step in range(10):
        if step == 5:  # no longer channels_last
            params[2].data, params[2].grad = params[2].data.contiguous(), None
        give_gradients(params, step)
        for narrow, one in zip(params, wide, strict=True):
            one.grad = narrow.grad.float()
            one.data.copy_(narrow.data)
        optimizer.step()
        other.step()
    for narrow, one in zip(params, wide, strict=True):
        assert narrow.dtype == dtype
        assert torch.equal(narrow, one.to(dtype))
        for name in set(other.state[one]) - {"step"}:
            assert optimizer.state[narrow][name].dtype == torch.float32
            torch.testing.assert_close(optimizer.state[narrow][name], other.state[one][name])


# ---------------------------------------------------------------------- autograd and graphs
@turns("make_own", [CASES[name] for name in OWN])
def test_autograd_follows_a_differentiable_step(make_own):
    def end(start, slope, rate):
        param = start.clone()
        optimizer = make_own([param], differentiable=True, lr=rate)
        optimizer.param_groups[0]["weight_decay"] = 0.1
        for factor in (1.0, 2.0, -0.5):
            param.grad = slope * factor * param.detach().sign()
            optimizer.step()
        return param

    generator = torch.Generator().manual_seed(0)
    inputs = [torch.rand(4, generator=generator, dtype=torch.float64) + 0.5 for _ in range(2)]
    inputs += [torch.tensor(0.1, dtype=torch.float64)]
    assert torch.autograd.gradcheck(end, [value.requires_grad_() for value in inputs])


# By the fused kernel, and one parameter at a time.
@turns("make_own", [CASES[name] for name in ("adam", "amsgrad", "radam", "adabelief-amsgrad")])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_capturable_steps_may_be_uneven(make_own, dtype):
    absent = lambda step: (0,) if step < 2 else ()  # noqa: E731
    shapes = ((1 << 17,), ((1 << 17) + 1,), (5,))
    params, others = parameters(dtype, shapes=shapes), parameters(dtype, shapes=shapes)
    # long steps, beside which the rounding of a narrow parameter is nothing
    optimizer, other = make_own(params, lr=1.0, capturable=True), make_own(others, lr=1.0)
    run(optimizer, params, 4, absent=absent)
    run(other, others, 4, absent=absent)
    for own, one in zip(params, others, strict=True):
        assert (own - one).abs().double().mean() < (1e-12 if dtype == torch.float64 else 0.02)
        state = optimizer.state[own]
        assert state["step"].item() == other.state[one]["step"]
        moments = [state[name] for name in set(state) - {"step"}]
        assert {m.dtype for m in moments} == {torch.promote_types(dtype, torch.float32)}


@turns("make_own", [CASES[name] for name in OWN])
def test_a_capturable_step_counts_in_a_tensor(make_own):
    params, others = parameters(), parameters()
    optimizer, other = make_own(params, capturable=True), make_own(others)
    run(optimizer, params, 4)
    addresses = [[v.data_ptr() for v in optimizer.state[p].values()] for p in params]
    close(run(optimizer, params, 4, 4), run(other, others, 8))
    # a graph that is replayed finds everything where it was
    assert addresses == [[v.data_ptr() for v in optimizer.state[p].values()] for p in params]
    assert {optimizer.state[p]["step"].item() for p in params} == {8.0}
    # and a checkpoint of it goes on without graphs
    saved = by_file(optimizer.state_dict())
    saved["param_groups"][0]["capturable"] = False
    resumed = make_own(params)
    resumed.load_state_dict(saved)
    close(run(resumed, params, 2, 8), run(other, others, 2, 8))
    assert {type(resumed.state[p]["step"]) for p in params} == {int}


# ---------------------------------------------------------------------- weight decay
@turns("options", [{}, {"foreach": True}, {"capturable": True}])
@pytest.mark.parametrize("name", CASES)
def test_another_decay_is_called_by_every_optimizer(name, options):
    params, others = parameters(), parameters()
    optimizer = CASES[name](params, weight_decay=L1(0.1), **options)
    other = CASES[name](others, weight_decay=0.0)
    for step in range(5):
        run(optimizer, params, 1, step)
        for param, own in zip(others, params, strict=True):  # the gradient with its penalty
            param.grad = own.grad + 0.1 * param.detach().sign()
        other.step()
        close(params, others)
    optimizer.param_groups[0]["weight_decay"] = 0.0
    before = [p.detach().clone() for p in params]
    run(optimizer, params, 1, 5)
    assert not any(map(torch.equal, params, before))


def carried(pair):
    params, optimizer = pair
    fresh = [nn.Parameter(p.detach().clone()) for p in params]
    other = Adam(fresh, weight_decay=type(optimizer.weight_decay)(5.0))
    other.load_state_dict(optimizer.state_dict())
    return fresh, other


@turns("decay", [L1(0.1), WeightDecay(0.1), WeightDecay(0.1, False)])
@turns("way", [carried, copy.deepcopy, by_pickle])
def test_a_decay_survives_copies_and_checkpoints(decay, way):
    params = parameters()
    optimizer = Adam(params, lr=0.1, weight_decay=decay)
    run(optimizer, params, 3)
    others, other = way((params, optimizer))
    assert type(other.weight_decay) is type(decay)
    same(run(other, others, 3, 3), run(optimizer, params, 3, 3))


def test_a_decay_gets_the_rate_of_the_step():
    class Recorded(WeightDecay):
        def __call__(self, param, grad, group):
            rates.append(group["lr"])
            return super().__call__(param, grad, group)

    rates = []
    params, others = parameters(), parameters()
    one = AdamWarmup(params, lr=0.1, warmup=4, weight_decay=Recorded(0.1))
    other = AdamWarmup(others, lr=0.1, warmup=4, weight_decay=0.1)
    close(run(one, params, 6), run(other, others, 6))
    assert rates[:: len(params)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    assert one.param_groups[0]["lr"] == 0.1


def test_groups_have_one_kind_of_decay():
    params = parameters()
    for own, other in ((WeightDecay(0.1), L1(0.1)), (L1(0.1), WeightDecay(0.1))):
        with pytest.raises(ValueError, match=f"class of the optimizer's, `{type(own).__name__}`"):
            Adam([{"params": params, "weight_decay": other}], weight_decay=own)
    optimizer = Adam([{"params": params, "weight_decay": L1(0.3)}], weight_decay=L1(0.1))
    assert optimizer.param_groups[0]["weight_decay"] == 0.3
    with pytest.raises(ValueError, match="another `step_param` or weight decay"):
        run(Adam(params, weight_decay=L1(0.1), fused=True), params, 1)


def test_a_step_and_a_rate_that_a_subclass_defines_are_those_that_are_taken():
    class Clipped(Adam):
        def step_param(self, state, group, grad, param):
            super().step_param(state, group, grad.clamp(-0.01, 0.01), param)

    class Signs(Adam):
        def init_state(self, state, group, param):
            state["seen"] = torch.zeros_like(param)

        def step_param(self, state, group, grad, param):
            state["seen"].add_(grad)
            param.sub_(group["lr"] * state["seen"].sign())

    class Halved(Adam):
        def rate(self, group, step):
            return group["lr"] / 2

    params, others = parameters(), parameters()
    optimizer, other = Clipped(params, eps=0.1), Adam(others, eps=0.1)
    for step in range(4):
        run(optimizer, params, 1, step)
        for param, own in zip(others, params, strict=True):
            param.grad = own.grad.clamp(-0.01, 0.01)
        other.step()
    close(params, others)
    params = parameters()
    kept = [p.detach().clone() for p in params]
    optimizer = Signs(params, lr=0.25)
    run(optimizer, params, 1)
    close(params, [k - 0.25 * p.grad.sign() for p, k in zip(params, kept, strict=True)])
    assert {*optimizer.state[params[0]]} == {"seen"}
    Signs(parameters()).load_state_dict(optimizer.state_dict())
    for options in ({}, {"capturable": True}, {"foreach": True}):
        params, others = parameters(), parameters()
        close(run(Halved(params, **options), params), run(Adam(others, lr=5e-4), others))
