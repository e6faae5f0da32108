"""States that cannot be a parameter's are refused; those of torch's optimizers are taken."""

import copy

import pytest
import torch
from optimizer_cases import CASES, OWN, close, give_gradients, parameters, run, same
from subtests import turns
from torch import nn
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

from lightning_accum.optim import AdaBelief, Adam, AMSGrad, RAdam, WeightDecay

SOME = ["adam", "warmup-amsgrad", "radam", "adabelief-amsgrad"]
WAYS = ({}, {"foreach": True}, {"foreach": False}, {"capturable": True})


def saved_by(make, params, **options):
    optimizer = make(params, **options)
    run(optimizer, params, 3)
    return optimizer.state_dict()


def refused(optimizer, state_dict, match):
    kept, groups = copy.deepcopy(optimizer.state), copy.deepcopy(optimizer.param_groups)
    with pytest.raises((ValueError, TypeError), match=match):
        optimizer.load_state_dict(state_dict)
    assert str(dict(optimizer.state)) == str(dict(kept))
    assert str(optimizer.param_groups) == str(groups)
    run(optimizer, optimizer.param_groups[0]["params"], 2)  # and it goes on


@turns("options", (*WAYS, {"weight_decay": WeightDecay(0.1, absolute=True)}))
@turns("name", CASES)
def test_a_look_at_an_optimizer_that_has_no_state_changes_nothing(name, options):
    if name == "one-at-a-time" and "foreach" in options:
        return
    found = []
    for looks in (False, True):
        net = nn.ParameterList(parameters())
        optimizer = CASES[name](net, **options)
        if looks:
            saved = get_optimizer_state_dict(net, optimizer)
            assert saved["state"].keys() == {"0", "1", "2", "3", "4"}
        found.append(run(optimizer, [*net], 3))
    same(*found)


# ---------------------------------------------------------------------- shapes
@turns("name", SOME)
@turns("before, after", [
    (((8,), (9000,)), ((9000,), (8,))),  # another order
    (((64,),), ((4096,),)),
    (((4096,),), ((64,),)),
    (((4, 6),), ((6, 4),)),
    (((1,),), ((5,),)),
    (((),), ((5,),)),
])  # fmt: skip
def test_moments_of_other_shapes_are_refused(name, before, after):
    saved = saved_by(CASES[name], parameters(shapes=before))
    for options in ({}, {"foreach": True}, {"capturable": True}):
        refused(CASES[name](parameters(shapes=after), **options), saved, "of the parameter's shape")


@pytest.mark.parametrize("options", WAYS)
@pytest.mark.parametrize("name", SOME)
def test_moments_that_others_replace_are_checked_before_any_parameter_steps(name, options):
    first, second = parameters(shapes=((5,), (4,))), parameters(shapes=((9000,),))
    params = first + second
    optimizer = CASES[name]([{"params": first}, {"params": second}], **options)
    run(optimizer, params, 2)
    kept = [p.detach().clone() for p in params]
    state = optimizer.state[second[0]]
    good = state["exp_avg"]
    wrong = [good[:7], good[None], good.long(), good.to_sparse(), good.to("meta"), [1.0], None]
    for value in wrong:
        state["exp_avg"] = value
        give_gradients(params, 2)
        with pytest.raises(ValueError, match=r"hold `exp_avg` as a dense.*\(9000,\)"):
            optimizer.step()
        same(params, kept)
        assert optimizer.state[first[0]]["step"] == 2
    # of another dtype or layout it is taken
    state["exp_avg"] = torch.stack([good, good], 1).float()[:, 0]
    give_gradients(params, 2)
    optimizer.step()
    assert optimizer.state[first[0]]["step"] == 3
    assert optimizer.state[second[0]]["exp_avg"].is_contiguous()
    assert optimizer.state[second[0]]["exp_avg"].dtype == torch.float64


@turns(
    "name, capturable",
    [*((name, False) for name in ("adam", "amsgrad", "radam", "adabelief-amsgrad")),
     ("adam", True), ("amsgrad", True)],
)  # fmt: skip
def test_the_kernel_gets_nothing_that_has_shrunk_in_place(name, capturable):
    def shrink(param, state):
        param.data = param.data[:3]

    def cut_a_moment(param, state):
        _, _, second, *_ = state.values()
        second.resize_(3)

    def grow(param, state):
        param.data = torch.ones(90_000, dtype=torch.float64)

    for change in (shrink, cut_a_moment, grow):
        params = parameters(shapes=((7,), (5,)))
        optimizer = CASES[name](params, capturable=capturable)
        run(optimizer, params, 2)
        give_gradients(params, 2)
        change(params[1], optimizer.state[params[1]])
        kept = [p.detach().clone() for p in params]
        for _ in range(2):  # with the plan, and with a new one
            with pytest.raises((RuntimeError, ValueError), match=r"shape|size of tensor"):
                optimizer.step()
            same(params, kept)
            assert optimizer.state[params[0]]["step"] == 2


def test_moments_that_share_their_elements_are_spread():
    param = nn.Parameter(torch.ones(50))
    optimizer = Adam([param])
    param.grad = torch.ones(50)
    optimizer.step()
    optimizer.state[param]["exp_avg"] = torch.full((1,), 0.1).expand(50)
    whole = torch.zeros(50, 3)
    optimizer.state[param]["exp_avg_sq"] = whole[:, 1]
    optimizer.step()
    assert optimizer.state[param]["exp_avg"].stride() == (1,)
    assert not whole.any()
    assert (param == param[0]).all()


def test_a_gradient_is_of_its_parameters_shape():
    for make in (Adam, RAdam, AdaBelief):
        param = nn.Parameter(torch.ones(4))
        optimizer = make([param])
        param.grad = torch.ones(4)
        param.data = torch.ones(6)
        with pytest.raises(RuntimeError, match=r"gradient should be of the shape.*\(6,\)"):
            optimizer.step()
        assert not optimizer.state
        optimizer.zero_grad()
        param.grad = torch.ones(6)
        optimizer.step()
        assert (param < 1).all()


@turns("make", [Adam, AMSGrad, RAdam])
@turns("before", [0, 1])
def test_complex_parameters_go_as_pairs_also_with_moments_of_torchs(make, before):
    theirs = getattr(torch.optim, make.__name__, torch.optim.Adam)
    extra = {"amsgrad": True} if make is AMSGrad else {}
    values = torch.randn(2, 5, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    left, right = nn.Parameter(values.clone()), nn.Parameter(values.clone())
    one, two = make([left], lr=0.1), theirs([right], lr=0.1, **extra)
    for factor in (2j,) * before:
        right.grad = values * factor
        two.step()
        left.data.copy_(right.data)
        one.load_state_dict(two.state_dict())
    for factor in (1.0, -0.5j, -0.5):
        left.grad, right.grad = values * factor, values * factor
        one.step()
        two.step()
    close([left], [right])


# ---------------------------------------------------------------------- what else a state may hold
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("entry", "values", "match"),
    [
        ("step", ["3", None, [3], -1, NAN, float("inf"), 2.5, True, torch.tensor([1, 2]),
                  torch.tensor(NAN), torch.tensor(-2.0), torch.tensor(1j), 2**53, 1e300, 10**400,
                  torch.ones((), device="meta")], "count its steps"),
        ("exp_avg", [None, 0.0, "x", [0.0] * 5, torch.zeros(5).long(), torch.zeros(5).bool(),
                     torch.zeros(5) + 0j, torch.zeros(5).to_sparse(), torch.zeros(5).to("meta")],
         "`exp_avg`"),
        ("max_exp_avg_sq", [0.0, torch.zeros(4)], "`max_exp_avg_sq`"),
        ("exp_avg", [torch.tensor([0, 0, v, 0, 0]) for v in (NAN, INF, -INF)], "finite numbers in"),
        *((name, [torch.tensor([0, 0, v, 0, 0]) for v in (NAN, -INF, -1e-9)], "of at least zero in")
          for name in ("exp_avg_sq", "max_exp_avg_sq")),
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"capturable": True}])
def test_what_cannot_be_a_state_is_refused(options, entry, values, match):
    for value in values:
        params = parameters(shapes=((5,),))
        saved = saved_by(AMSGrad, params, **options)
        saved["state"][0][entry] = value
        refused(AMSGrad(parameters(shapes=((5,),)), **options), saved, match)


@pytest.mark.parametrize("name", CASES)
def test_what_is_no_state_dict(name):
    saved = saved_by(CASES[name], parameters())
    (group,), states = saved["param_groups"], saved["state"]
    entries = [entry for entry in states[0] if name in OWN and not entry.startswith("max")]
    flags = [k for k, v in group.items() if type(v) is bool] + ["foreach"] * (name in OWN)
    for wrong, words in [
        *((each, "`state_dict` should be a mapping") for each in (None, [], 3, "state")),
        *((each, r"should be a result of `state_dict\(\)`") for each in (
            {}, {"state": {}}, {"param_groups": []}, {**saved, "state": None},
            *({**saved, "param_groups": groups} for groups in (3, [1], [{}])))),
        ({**saved, "state": {0: 3}}, "state of parameter 0 should be a dict"),
        (CASES[name](parameters()[:2]).state_dict(), "groups of .5. parameters"),
        ({**saved, "param_groups": [{**group, "lr": -1.0}]}, r"`lr = -1\.0`"),
        *(({**saved, "param_groups": [{**group, flag: value}]}, f"`{flag}` should be True")
          for flag in flags for value in ("yes", 1, torch.tensor(True))),
        *(({**saved, "state": {**states, 0: {k: v for k, v in states[0].items() if k != entry}}},
           rf"Found no \['{entry}'\]") for entry in entries),
    ]:  # fmt: skip
        refused(CASES[name](parameters()), wrong, words)


def test_an_empty_state_is_begun():
    saved = saved_by(Adam, parameters())
    saved["state"][1] = {}
    params = parameters()
    optimizer = Adam(params)
    optimizer.load_state_dict(saved)
    run(optimizer, params, 1, 3)
    assert [optimizer.state[p]["step"] for p in params] == [4, 1, 4, 4, 4]


@pytest.mark.parametrize("theirs", [torch.optim.Adam, torch.optim.AdamW])
def test_a_checkpoint_of_torchs_goes_on(theirs):
    left, right = parameters(), parameters()
    optimizer = theirs(right, lr=0.01, weight_decay=0.1)
    run(optimizer, right, 10)
    for own, other in zip(left, right, strict=True):
        own.data.copy_(other.data)
    # Before torch 2.7 a checkpoint does not say which of the two it is of.
    told = "decoupled_weight_decay" in optimizer.param_groups[0]
    decay = WeightDecay(weight_decouple=told or theirs is torch.optim.AdamW)
    ours = Adam(left, lr=1.0, weight_decay=decay)
    ours.load_state_dict(optimizer.state_dict())
    close(run(ours, left, 10, 10), run(optimizer, right, 10, 10))
