"""What an optimizer does where nothing is said: every default, and further ones."""

from __future__ import annotations

import pytest
from optimizer_cases import close, parameters, run, same

from lightning_accum.optim import (
    AdaBelief,
    Adam,
    AdamWarmup,
    AdamWarmupCosineDecay,
    AMSGrad,
    Noam,
    RAdam,
)

KINDS = [Adam, AMSGrad, AdamWarmup, Noam, AdamWarmupCosineDecay, RAdam, AdaBelief]
SHARED = {
    "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0, "weight_decouple": True,
    "absolute": False, "maximize": False, "capturable": False, "differentiable": False,
    "foreach": None,
}  # fmt: skip
FUSED = {**SHARED, "fused": None, "amsgrad": False, "optimized_update": False}
DEFAULTS = {
    Adam: FUSED,
    AMSGrad: {**FUSED, "amsgrad": True},
    AdamWarmup: {**FUSED, "warmup": 0},
    Noam: {**FUSED, "lr": 1.0, "betas": (0.9, 0.98), "eps": 1e-9, "warmup": 4000, "d_model": 512},
    AdamWarmupCosineDecay: {**FUSED, "warmup": 0, "total_steps": 10_000},
    RAdam: {
        **SHARED, "amsgrad": False, "optimized_update": True, "degenerate_to_sgd": True,
        "compile": False,
    },
    AdaBelief: {
        **SHARED, "eps": 1e-16, "amsgrad": False, "rectify": False, "degenerate_to_sgd": True,
        "compile": False,
    },
}  # fmt: skip


@pytest.mark.parametrize("make", KINDS)
def test_every_default(make):
    (group,) = make(parameters()).param_groups
    assert {key: value for key, value in group.items() if key != "params"} == DEFAULTS[make]


@pytest.mark.parametrize("make", KINDS)
def test_further_defaults_reach_every_group(make):
    further = {"note": 3}
    params = parameters()
    groups = [{"params": params[:1]}, {"params": params[1:], "note": 4}]
    optimizer = make(groups, defaults=further)
    assert [group["note"] for group in optimizer.param_groups] == [3, 4]
    assert further == {"note": 3}
    with pytest.raises(ValueError, match=r"arguments themselves. Found \['eps', 'lr'\]"):
        make(params, defaults={"lr": 1.0, "note": 1, "eps": 1.0})
    with pytest.raises(TypeError, match="`defaults`"):
        make(params, defaults=3)


def test_amsgrad_without_its_maximum_is_adam():
    params, others = parameters(), parameters()
    same(run(AMSGrad(params, amsgrad=False), params), run(Adam(others), others))


@pytest.mark.parametrize("options", [{}, {"capturable": True}, {"foreach": False}])
def test_radams_eps_beside_either_root(options):
    params, others = parameters(), parameters()
    eps, betas = 0.1, (0.9, 0.9)
    one = RAdam(params, lr=0.01, eps=eps, betas=betas, optimized_update=False, **options)
    other = RAdam(others, lr=0.01, betas=betas, **options)
    for step in range(30):
        # the same step, where ε is multiplied by the correction of the second moment
        other.param_groups[0]["eps"] = eps * (1 - betas[1] ** (step + 1)) ** 0.5
        close(run(one, params, 1, step), run(other, others, 1, step))
