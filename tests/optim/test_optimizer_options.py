"""What options are taken, and what is said of those that are not."""

from __future__ import annotations

import inspect

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.cli import LightningCLI
from optimizer_cases import ADAM, CASES, OWN, parameters, run, same
from torch import nn
from turns import turns

from lightning_accum.optim import (
    AdaBelief,
    Adam,
    AdamOptions,
    AdamWarmup,
    AdamWarmupCosineDecay,
    AMSGrad,
    MomentOptions,
    Noam,
    RAdam,
    WeightDecay,
)

KINDS = [Adam, AMSGrad, AdamWarmup, Noam, AdamWarmupCosineDecay, RAdam, AdaBelief]
NAN = float("nan")
WRONG = {
    "lr": [-1.0, NAN, "fast", None, torch.tensor(-1.0), torch.ones(2)],
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


@pytest.mark.parametrize("name", OWN)
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


@pytest.mark.parametrize(
    ("make", "option", "value"),
    [
        (AdamWarmup, "warmup", -1),
        (Noam, "warmup", 0),
        (Noam, "warmup", NAN),
        (Noam, "d_model", 0),
        (AdamWarmupCosineDecay, "warmup", -1),
        (AdamWarmupCosineDecay, "warmup", 10_000),
        (AdamWarmupCosineDecay, "total_steps", 0),
    ],
)
def test_schedules_that_cannot_be(make, option, value):
    with pytest.raises(ValueError, match=r"should be (a|0, or a)") as error:
        make(parameters(), **{option: value})
    assert f"{value!r}" in str(error.value)


@turns(
    "options, named",
    [
        ({"foreach": True, "fused": True}, "fused"),
        ({"differentiable": True, "fused": True}, "fused"),
        ({"differentiable": True, "foreach": True}, "foreach"),
    ],
)
@turns("name", ADAM)
def test_ways_that_exclude_each_other(name, options, named):
    with pytest.raises(ValueError, match=f"`{named} = True`"):
        CASES[name](parameters(), **options)


@pytest.mark.parametrize("other", ["differentiable", "foreach"])
@pytest.mark.parametrize("make", [RAdam, AdaBelief])
def test_compile_excludes_other_ways(make, other):
    with pytest.raises(ValueError, match="`compile = True`"):
        make(parameters(), compile=True, **{other: True})


def test_a_fused_step_that_cannot_be():
    params = [nn.Parameter(torch.ones(2, dtype=torch.complex64))]
    params[0].grad = torch.ones_like(params[0])
    with pytest.raises(ValueError, match="`fused = True` for a `Parameter`"):
        Adam(params, fused=True).step()
    params = parameters()
    params[0].grad = torch.ones_like(params[0])
    with pytest.raises(ValueError, match="capturable"):
        Noam(params, fused=True, capturable=True).step()
    Adam(params, fused=True, capturable=True).step()


@pytest.mark.parametrize("name", CASES)
def test_sparse_gradients_are_refused_before_anything_changes(name):
    params = parameters()
    optimizer = CASES[name](params)
    for step in range(2):
        for param in params:
            param.grad = torch.ones_like(param)
        if step:
            params[1].grad = params[1].grad.to_sparse()
            kept = [p.detach().clone() for p in params]
            with pytest.raises(RuntimeError, match=r"SparseAdam.*sparse=False") as error:
                optimizer.step()
            assert "(3, 5)" in str(error.value)
            assert all(map(torch.equal, params, kept))
            assert optimizer.state[params[0]]["step"] == 1
            params[1].grad = None
        optimizer.step()


def test_weight_decay_says_what_groups_hold():
    decay = WeightDecay(0.1, weight_decouple=False, absolute=True)
    assert decay.defaults() == {"weight_decay": 0.1, "weight_decouple": False, "absolute": True}
    with pytest.raises(ValueError, match=r"`weight_decay = -0\.1`"):
        WeightDecay(-0.1)
    params = parameters()
    groups = [{"params": params[:1], "weight_decay": WeightDecay(0.2, absolute=True)},
              {"params": params[1:2], "weight_decay": 0.3}, {"params": params[2:]}]  # fmt: skip
    found = Adam(groups, weight_decay=decay).param_groups
    assert [g["weight_decay"] for g in found] == [0.2, 0.3, 0.1]
    assert [g["weight_decouple"] for g in found] == [True, False, False]
    assert [g["absolute"] for g in found] == [True, True, True]
    assert Adam(params).param_groups[0]["weight_decay"] == 0.0


@pytest.mark.parametrize("make", KINDS)
def test_every_option_is_in_the_groups(make):
    shared = MomentOptions if make in (RAdam, AdaBelief) else AdamOptions
    options = {*inspect.signature(make).parameters, *shared.__annotations__}
    options -= {"params", "defaults", "options"}
    assert options <= set(make(parameters()).param_groups[0])


@pytest.mark.parametrize("make", KINDS)
def test_an_unknown_option_is_refused(make):
    with pytest.raises(TypeError, match="unexpected keyword argument 'maximise'"):
        make(parameters(), maximise=True)


class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)

    def training_step(self, batch, index):
        return (self.layer(batch[0]) ** 2).sum()

    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(4, 2)))


@pytest.mark.parametrize("make", KINDS)
def test_a_command_line_makes_any_of_them(make, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["fit"])
    trainer = {
        "max_steps": 2, "accelerator": "cpu", "logger": "false", "default_root_dir": tmp_path,
        "enable_progress_bar": "false", "enable_model_summary": "false",
    }  # fmt: skip
    cli = LightningCLI(
        Model,
        args=[
            "fit",
            *(f"--trainer.{key}={value}" for key, value in trainer.items()),
            f"--optimizer=lightning_accum.optim.{make.__name__}",
            "--optimizer.lr=0.25",
            "--optimizer.betas=[0.5, 0.75]",
            "--optimizer.weight_decay.weight_decay=0.5",
            "--optimizer.weight_decay.weight_decouple=false",
        ],
        save_config_callback=None,
        seed_everything_default=False,
    )
    optimizer = cli.trainer.optimizers[0]
    assert type(optimizer) is make
    expected = {"lr": 0.25, "betas": (0.5, 0.75), "weight_decay": 0.5, "weight_decouple": False}
    assert expected.items() <= optimizer.param_groups[0].items()
    assert [state["step"] for state in optimizer.state.values()] == [2, 2]
    checkpoint = torch.load(next(tmp_path.rglob("*.ckpt")), weights_only=True)
    fresh = make(Model().parameters())
    fresh.load_state_dict(checkpoint["optimizer_states"][0])
    assert expected.items() <= fresh.param_groups[0].items()
