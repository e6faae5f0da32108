"""What options are taken by default, and what is said of those that cannot be."""

import inspect
import math

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringModel
from optimizer_cases import ADAM, CASES, OWN, close, parameters, run, same
from subtests import turns
from torch import nn

from lightning_accum import optim

NAN = float("nan")
SHARED = {
    "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "weight_decouple": True,
    "absolute": False, "maximize": False, "capturable": False, "differentiable": False,
    "foreach": None,
}  # fmt: skip
FUSED = {**SHARED, "fused": None, "amsgrad": False, "optimized_update": False}
DEFAULTS = {
    optim.Adam: FUSED,
    optim.AMSGrad: {**FUSED, "amsgrad": True},
    optim.AdamWarmup: {**FUSED, "warmup": 0},
    optim.Noam: {
        **FUSED, "lr": 1.0, "betas": (0.9, 0.98), "eps": 1e-9, "warmup": 4000, "d_model": 512
    },
    optim.AdamWarmupCosineDecay: {**FUSED, "warmup": 0, "total_steps": 10_000},
    optim.RAdam: {**SHARED, "amsgrad": False, "optimized_update": True, "degenerate_to_sgd": True},
    optim.AdaBelief: {
        **SHARED, "eps": 1e-16, "amsgrad": False, "rectify": False, "degenerate_to_sgd": True,
    },
}  # fmt: skip


# ---------------------------------------------------------------------- what is taken
def test_every_optimizer_is_in_the_table():
    base, public = optim.GenericAdaptiveOptimizer, {getattr(optim, name) for name in optim.__all__}
    kinds = {each for each in public if isinstance(each, type) and issubclass(each, base)}
    assert kinds == {*DEFAULTS, base}


@turns("make", DEFAULTS)
def test_every_default(make):
    (group,) = make(parameters()).param_groups
    assert {key: value for key, value in group.items() if key != "params"} == DEFAULTS[make]
    shared = optim.MomentOptions if make in (optim.RAdam, optim.AdaBelief) else optim.AdamOptions
    options = {*inspect.signature(make).parameters, *shared.__annotations__}
    assert options - {"params", "defaults", "options"} <= set(group)
    further, params = {"note": 3}, parameters()
    groups = [{"params": params[:1]}, {"params": params[1:], "note": 4}]
    found = make(groups, defaults=further).param_groups
    assert [group["note"] for group in found] == [3, 4]  # further ones reach every group
    assert further == {"note": 3}


@turns("options", [{}, {"capturable": True}, {"foreach": False}])
def test_radams_eps_beside_either_root(options):
    params, others = parameters(), parameters()
    eps, betas = 0.1, (0.9, 0.9)
    one = optim.RAdam(params, lr=0.01, eps=eps, betas=betas, optimized_update=False, **options)
    other = optim.RAdam(others, lr=0.01, betas=betas, **options)
    for step in range(30):
        # the same step, where ε is multiplied by the correction of the second moment
        other.param_groups[0]["eps"] = eps * (1 - betas[1] ** (step + 1)) ** 0.5
        close(run(one, params, 1, step), run(other, others, 1, step))


@turns("name", OWN)
def test_options_on_the_edge_of_their_range_are_taken(name):
    assert CASES[name](parameters(), eps=0.0).param_groups[0]["eps"] == 0.0
    # Without steps of momentum, a second decay of 0 is refused.
    still = {"betas": (0.0, 0.9 if name == "radam-still" else 0.0), "weight_decay": 0.0}
    for lr in (0, 0.0, torch.tensor(0.0), torch.tensor([0.0])):
        params = parameters()
        kept = [p.detach().clone() for p in params]
        same(run(CASES[name](params, **{**still, "lr": lr}), params, 2), kept)
    for option, value in (("warmup", 1), ("d_model", 1), ("total_steps", 4)):
        if option in CASES[name](parameters()).param_groups[0]:
            params = parameters()
            run(CASES[name](params, **{option: value}), params, 2)
            assert all(p.isfinite().all() for p in params)


def test_weight_decay_says_what_groups_hold():
    decay = optim.WeightDecay(0.1, weight_decouple=False, absolute=True)
    assert decay.defaults() == {"weight_decay": 0.1, "weight_decouple": False, "absolute": True}
    params = parameters()
    groups = [{"params": params[:1], "weight_decay": optim.WeightDecay(0.2, absolute=True)},
              {"params": params[1:2], "weight_decay": 0.3}, {"params": params[2:]}]  # fmt: skip
    found = optim.Adam(groups, weight_decay=decay).param_groups
    assert [g["weight_decay"] for g in found] == [0.2, 0.3, 0.1]
    assert [g["weight_decouple"] for g in found] == [True, False, False]
    assert [g["absolute"] for g in found] == [True, True, True]


# ---------------------------------------------------------------------- what is refused
WRONG = {
    "lr": [-1.0, NAN, math.inf, "fast", None, torch.tensor(-1.0), torch.ones(2)],
    "eps": [-1e-8, NAN, None],
    "betas": [(1.0, 0.9), (0.9, 1.0), (-0.1, 0.9), (0.9,), (0.9, 0.9, 0.9), 0.9, (NAN, 0.9)],
    "weight_decay": [-0.1, NAN, None],
}


@turns("option, value", [(k, v) for k, vs in WRONG.items() for v in vs])
@turns("name", OWN)
def test_options_out_of_range_are_named_with_their_value(name, option, value):
    params = parameters()
    for call in (
        lambda: CASES[name](params, **{option: value}),
        lambda: CASES[name]([{"params": params, option: value}]),
    ):
        with pytest.raises(ValueError, match=f"Argument `{option}` should be") as error:
            call()
        assert f"{option} = {value!r}" in str(error.value)


def rectifying(params, **options):
    return optim.AdaBelief(params, rectify=True, **options)


NEVER = {"betas": (0.9, 0.5), "degenerate_to_sgd": False}
REFUSED = [
    *((make, {"defaults": 3}, TypeError, "`defaults`") for make in DEFAULTS),
    *((make, {"defaults": {"lr": 1.0, "note": 1, "eps": 1.0}}, ValueError,
       r"arguments themselves. Found `defaults = \['eps', 'lr'\]") for make in DEFAULTS),
    *((make, {"maximise": True}, TypeError, "nothing takes: did you mean `maximize`")
      for make in DEFAULTS),
    (optim.AdamWarmup, {"warmup_steps": 9}, TypeError, "`warmup` or .* did you mean `warmup`"),
    (optim.Adam, {"amsgrad": True}, TypeError, "nothing takes: take `AMSGrad`"),
    *((make, {name: True}, TypeError, rf"nothing takes: pass `weight_decay=WeightDecay\(.*{name}")
      for make in DEFAULTS for name in ("weight_decouple", "absolute")),
    *((CASES[name], {other: True, "fused": True}, ValueError, "`fused = True`")
      for name in ADAM for other in ("foreach", "differentiable")),
    *((CASES[name], {"differentiable": True, "foreach": True}, ValueError, "`foreach = True`")
      for name in ADAM),
    (optim.AdamWarmup, {"warmup": -1}, ValueError, r"0, or a number of steps of .* `warmup = -1`"),
    (optim.AdamWarmup, {"warmup": 0.1}, ValueError, r"of at least 1. Found `warmup = 0.1`"),
    (optim.Noam, {"warmup": 0}, ValueError, "a number of steps of at least 1. Found `warmup = 0`"),
    (optim.Noam, {"warmup": NAN}, ValueError, "Found `warmup = nan`"),
    (optim.Noam, {"d_model": 0}, ValueError, "be a width of at least 1. Found `d_model = 0`"),
    (optim.AdamWarmupCosineDecay, {"warmup": -1}, ValueError, "Found `warmup = -1`"),
    (optim.AdamWarmupCosineDecay, {"warmup": 0.1}, ValueError, "Found `warmup = 0.1`"),
    (optim.AdamWarmupCosineDecay, {"warmup": 10_000}, ValueError,
     "above `warmup = 10000`. Found `total_steps = 10000`"),
    (optim.AdamWarmupCosineDecay, {"total_steps": 0}, ValueError, "Found `total_steps = 0`"),
    *((make, NEVER, ValueError, r"above 2 / 3 .* Found `betas = \(0.9, 0.5\)`")
      for make in (optim.RAdam, rectifying)),
    (optim.Adam, {"weight_decay": optim.WeightDecay(1.5, absolute=True)}, ValueError,
     r"below 1 .* 1.5`: it flips their signs"),
    (optim.Adam, {"weight_decay": optim.WeightDecay(1.0, absolute=True)}, ValueError,
     r"Found `weight_decay = 1.0`: it sets them to 0"),
    (lambda _: optim.WeightDecay(-0.1), {}, ValueError, r"`weight_decay = -0\.1`"),
]  # fmt: skip


@turns("make, options, kind, words", REFUSED)
def test_options_that_cannot_be(make, options, kind, words):
    with pytest.raises(kind, match=words):
        make(parameters(), **options)


def test_options_that_are_not_far_from_wrong_are_taken():
    params = [nn.Parameter(torch.ones(2))]
    for make in (optim.AdamWarmup, optim.AdamWarmupCosineDecay):
        make(params, warmup=0), make(params, warmup=10)
    optim.AdaBelief(params, **NEVER)  # which does not rectify
    optim.Adam(params, weight_decay=optim.WeightDecay(1.5))
    optim.Adam(params, weight_decay=optim.WeightDecay(1.5, weight_decouple=False, absolute=True))
    optimizer = optim.Adam(params, weight_decay=optim.WeightDecay(0.9, absolute=True))
    with pytest.raises(ValueError, match="below 1"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1))], "weight_decay": 2.0})
    for make in (optim.RAdam, rectifying):
        make(params, betas=(0.9, 0.5))
        weight = nn.Parameter(torch.ones(2))
        optimizer = make([weight], betas=(0.9, 0.7), degenerate_to_sgd=False)
        for _ in range(30):
            weight.grad = torch.ones(2)
            optimizer.step()
        assert (weight < 1).all()


class Returning(optim.GenericAdaptiveOptimizer):
    """Returns what the template says to write in place."""

    def __init__(self, params, step=False, state=False):
        super().__init__(params, {}, 0.1, (0.9, 0.99), 0.0)
        self.returns = step, state

    def init_state(self, state, group, param):
        return state if self.returns[1] else None

    def step_param(self, state, group, grad, param):
        return param - grad if self.returns[0] else None


class InPlaceOnly(optim.WeightDecay):
    def __call__(self, param, grad, group):
        param.mul_(0.5)


def late(foreach):
    def make(params):
        optimizer = optim.Adam(params, foreach=foreach)
        optimizer.param_groups[0]["weight_decay"] = optim.WeightDecay(0.5)
        return optimizer

    return make


def complex_fused(params):
    params[0].data, params[0].grad = params[0].data.to(torch.cfloat), None
    params[0].grad = torch.ones_like(params[0])
    return optim.Adam(params, fused=True)


@turns("make, kind, words", [
    (lambda p: optim.GenericAdaptiveOptimizer(p, {}, 0.1, (0.9, 0.9), 0.0), NotImplementedError,
     r"define `step_param\(state, group"),
    (lambda p: Returning(p, step=True), TypeError, r"param\.copy_"),
    (lambda p: Returning(p, state=True), TypeError, r"state\.update"),
    *((late(foreach), TypeError, r"of a group .* should be a number. Found a `WeightDecay`")
      for foreach in (None, False)),
    (lambda p: optim.Adam(p, weight_decay=InPlaceOnly(0.1)), TypeError,
     r"Found a `NoneType` from `InPlaceOnly.__call__"),
    (complex_fused, ValueError, "`fused = True` for a `Parameter`"),
    (lambda p: optim.Noam(p, fused=True, capturable=True), ValueError, "capturable"),
])  # fmt: skip
def test_steps_that_cannot_be(make, kind, words):
    params = [nn.Parameter(torch.ones(2))]
    params[0].grad = torch.ones(2)
    with pytest.raises(kind, match=words):
        make(params).step()


@turns("name", CASES)
def test_sparse_gradients_are_refused_before_anything_changes(name):
    params = parameters()
    optimizer = CASES[name](params)
    for step in range(2):
        for param in params:
            param.grad = torch.ones_like(param)
        if step:
            params[1].grad = params[1].grad.to_sparse()
            kept = [p.detach().clone() for p in params]
            with pytest.raises(RuntimeError, match=r"\(3, 5\).*SparseAdam.*sparse=False"):
                optimizer.step()
            assert all(map(torch.equal, params, kept))
            assert optimizer.state[params[0]]["step"] == 1
            params[1].grad = None
        optimizer.step()


# ---------------------------------------------------------------------- what is told
@turns("kind", [torch.optim.Adam, optim.Adam])
def test_a_state_without_the_maximum(kind):
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    saver = kind([weight], lr=0.1)
    saver.step()
    optimizer = optim.AMSGrad([weight], lr=0.1)
    with pytest.warns(UserWarning, match=r"`AMSGrad` .* Found `amsgrad = False` in groups \[0\]"):
        optimizer.load_state_dict(saver.state_dict())
    optimizer.param_groups[0]["amsgrad"] = True
    for _ in range(2):
        weight.grad = torch.zeros(2)
        optimizer.step()
    state = optimizer.state[weight]
    assert (state["max_exp_avg_sq"] > state["exp_avg_sq"]).all()
    for make in (lambda: optim.AMSGrad([weight]), lambda: torch.optim.Adam([weight], amsgrad=True)):
        optimizer.load_state_dict(make().state_dict())
    optim.AMSGrad([weight], amsgrad=False).load_state_dict(saver.state_dict())


def test_rates_of_adam_given_to_noam():
    weight = nn.Parameter(torch.ones(2))
    with pytest.warns(UserWarning, match=r"about 1\. Found 0\.001.*7\.0e-07 at most.*`lr=1\.4`"):
        optim.Noam([weight], lr=1e-3)
    for lr, more in [(1.0, {}), (0.0, {}), (0.1, {}), (1e-3, {"warmup": 10, "d_model": 16})]:
        optim.Noam([weight], lr=lr, **more)
    saved = torch.optim.Adam([weight], lr=1e-3).state_dict()
    optimizer = optim.Noam([weight])
    with pytest.warns(UserWarning, match=r"Found 0.001, .*`group\['lr'\] = 1.4`"):
        optimizer.load_state_dict(saved)
    optimizer.load_state_dict(saved)  # it was as low before
    optimizer.param_groups[0]["lr"] = 1.4
    optimizer.load_state_dict(optim.Noam([weight]).state_dict())


@turns("options", [{}, {"fused": False}, {"foreach": False}])
def test_steps_long_after_the_end_of_a_schedule_are_told_once(options):
    weight = nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    optimizer = optim.AdamWarmupCosineDecay([weight], total_steps=100, **options)
    for _ in range(120):  # a few more than planned may be meant
        optimizer.step()
    with pytest.warns(UserWarning, match=r"`total_steps` of .*Found 100 and step 121: the"):
        optimizer.step()
    before = weight.detach().clone()
    for _ in range(10):
        optimizer.step()
    assert torch.equal(weight, before)


class Model(BoringModel):
    configure_optimizers = pl.LightningModule.configure_optimizers  # the command line's


@pytest.mark.parametrize("make", DEFAULTS)
def test_a_command_line_makes_any_of_them(make, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["fit"])
    trainer = {
        "max_steps": 2, "accelerator": "cpu", "logger": False, "default_root_dir": tmp_path,
        "enable_progress_bar": False, "enable_model_summary": False, "limit_val_batches": 0,
    }  # fmt: skip
    of = ["lr=0.25", "betas=[0.5, 0.75]", "weight_decay.weight_decay=0.5"]
    options = [f"--optimizer.{each}" for each in (*of, "weight_decay.weight_decouple=false")]
    args = ["fit", f"--optimizer=lightning_accum.optim.{make.__name__}", *options]
    quiet = {"save_config_callback": None, "seed_everything_default": False}
    cli = LightningCLI(Model, args=args, trainer_defaults=trainer, **quiet)
    optimizer = cli.trainer.optimizers[0]
    assert type(optimizer) is make
    expected = {"lr": 0.25, "betas": (0.5, 0.75), "weight_decay": 0.5, "weight_decouple": False}
    assert expected.items() <= optimizer.param_groups[0].items()
    assert [state["step"] for state in optimizer.state.values()] == [2, 2]
    checkpoint = torch.load(next(tmp_path.rglob("*.ckpt")), weights_only=True)
    fresh = make(Model().parameters())
    fresh.load_state_dict(checkpoint["optimizer_states"][0])
    assert expected.items() <= fresh.param_groups[0].items()
