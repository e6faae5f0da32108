"""Rules change weights as NEST's synapses and Brian2's equations do, by the results of both."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from clamped_layers import layer, show
from torch import nn

import lightning_accum as la
from lightning_accum import RuleTrainer
from lightning_accum import nn as layers
from lightning_accum.functional import Triangular
from lightning_accum.rules import Feedback

NEST = json.loads(Path(__file__).with_name("nest.json").read_text())
Make = Callable[[dict[str, Any]], la.Rule]


class PowerLaw(la.Rule):
    """Potentiation by a power of the weight, and depression in proportion to it."""

    lr_post: float
    lr_pre: float
    tc_post: float
    tc_pre: float
    power: float

    def terms(self, window):
        post, pre, w = window.post, window.pre, window.param
        return (
            la.Term(self.lr_post, post, pre.trace(self.tc_pre), lambda x: x * w**self.power),
            la.Term(self.lr_pre, post.trace(self.tc_post), pre, lambda x: x * w),
        )


def pair(case):
    settings = case["settings"]
    rate = settings["lambda"] * settings.get("Wmax", 1.0)
    taus = {"tc_post": case["tau_minus"], "tc_pre": case["tau_plus"]}
    return {"lr_post": rate, "lr_pre": -settings["alpha"] * rate, **taus}


def weight_dependent(case):
    s = case["settings"]
    rule = la.WeightDependentSTDP(**pair(case), power_pos=s["mu_plus"], power_neg=s["mu_minus"])
    return RuleTrainer(rule, dt=case["dt"])


def triplet(case):
    s = case["settings"]
    rule = la.TripletSTDP(
        s["Aplus"], s["Aplus_triplet"], -s["Aminus"], -s["Aminus_triplet"],
        tc_post_fast=case["tau_minus"], tc_post_slow=case["tau_minus_triplet"],
        tc_pre_fast=case["tau_plus"], tc_pre_slow=s["tau_plus_triplet"],
    )  # fmt: skip
    return RuleTrainer(rule, dt=case["dt"])


def inhibitory(case):
    s = case["settings"]
    target = s["alpha"] / (2 * s["tau"]) * 1000.0
    return RuleTrainer(la.InhibitorySTDP(s["eta"], target, s["tau"]), dt=case["dt"])


def modulated(case):
    s, dt = case["settings"], case["dt"]
    both = 1 / s["tau_c"] + 1 / s["tau_n"]
    # NEST integrates the decay within a step, of the product and of the eligibility.
    product, alone = (-math.expm1(-dt * rate) / rate / dt for rate in (both, 1 / s["tau_c"]))
    dopamine = la.Neuromodulator(
        s["tau_n"], -s["b"] * s["tau_c"] * alone, s["tau_c"] / s["tau_n"] * product
    )
    taus = {"tc_post": case["tau_minus"], "tc_pre": case["tau_plus"], "tc_eligibility": s["tau_c"]}
    return RuleTrainer(la.MSTDPET(s["A_plus"], -s["A_minus"], **taus, reward=dopamine), dt=dt)


def nearest(pairing):
    options = {"trace_mode": "nearest", "pairing": pairing}
    return lambda case: RuleTrainer(la.STDP(**pair(case), **options), dt=case["dt"])


RULES = {
    "stdp_synapse": weight_dependent,
    "stdp_triplet_synapse": triplet,
    "stdp_nn_symm_synapse": nearest("symmetric"),
    "stdp_nn_pre_centered_synapse": nearest("presynaptic"),
    "stdp_nn_restr_synapse": nearest("reduced"),
    "stdp_pl_synapse_hom": lambda case: RuleTrainer(
        PowerLaw(**pair(case), power=case["settings"]["mu"]), dt=case["dt"]
    ),
    "vogels_sprekeler_synapse": inhibitory,
    "stdp_dopamine_synapse": modulated,
}


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def raster(trains, steps):
    spikes = torch.zeros(steps, 1, len(trains), dtype=torch.float64)
    for neuron, train in enumerate(trains):
        spikes[train, 0, neuron] = 1
    return spikes


def sides(case):
    return [raster(case[side], case["steps"]) for side in ("pre", "post")]


def learned(rule, pre, post, before, length=1, rewards=None):
    """The change of the weights, which are updated after each window of some steps."""
    model = layer(pre.shape[-1], post.shape[-1])
    model.connection.weight.data.copy_(before)
    rule.register_cell("cell", model.cell)
    for at in (slice(t, t + length) for t in range(0, len(pre), length)):
        show(model, pre[at], post[at])
        rule(**({} if rewards is None else {"reward": rewards[at]}))
        rule.update()
    return model.connection.weight.detach() - before


def error_of(found, expected):
    """The largest difference, in terms of the largest expected value."""
    return ((found - expected).abs().max() / expected.abs().max()).item()


@pytest.mark.parametrize("name", NEST["synapses"])
def test_weights_change_as_in_nest(name):
    case = NEST["synapses"][name]
    make, before = RULES[case["synapse"]], tensor(case["before"])
    expected = tensor(case["after"]) - before
    released = raster(case["dopamine"], case["steps"]).sum(-1) if "dopamine" in case else None
    depends = case["synapse"] in ("stdp_synapse", "stdp_pl_synapse_hom")
    for length in (1,) if depends else (1, 7, case["steps"]):
        found = learned(make(case), *sides(case), before, length, released)
        assert error_of(found, expected) < 1e-12, length


@pytest.mark.parametrize("name", NEST["short_term"])
def test_synapses_release_as_in_nest(name):
    case = NEST["short_term"][name]
    synapses = layers.ShortTermPlasticity(
        len(case["pre"]), case["U"], case["tau_rec"], case["tau_fac"] or None, case["dt"], 0
    )
    found = synapses(raster(case["pre"], case["steps"]))
    for i, (spikes, weights) in enumerate(zip(case["pre"], case["weights"], strict=True)):
        assert found[spikes, 0, i].tolist() == pytest.approx(weights, abs=1e-12 * max(weights))
    assert found.count_nonzero() == sum(map(len, case["weights"])) > 40


class Fixed(Feedback):
    def __init__(self, weight):
        super().__init__()
        self.weight = weight

    def matrix(self):
        return self.weight


@pytest.mark.parametrize("name", NEST["eprop"])
def test_a_network_learns_by_eprop_as_in_nest(name):
    case = NEST["eprop"][name]
    first, last, back = (tensor(case["weights"][key]) for key in ("in", "out", "back"))
    x, target = raster(case["pre"], case["steps"]), tensor(case["target"]).T.unsqueeze(1)
    names = {"beta": "adapt_beta", "tc_adaptation": "adapt_tau"}
    adapts = {name: case[key] for name, key in names.items() if key in case}
    hidden = layers.SurrogateLIF(
        len(first), case["tau_m"], v_threshold=case["threshold"], surrogate=Triangular(0.3, 1.0),
        time_dim=0, **adapts,
    )  # fmt: skip
    model = la.Serial(nn.Linear(*first.T.shape, bias=False), hidden)
    readout = layers.LeakyIntegrator(len(last), case["tau_readout"], time_dim=0)
    output = la.Serial(nn.Linear(*last.T.shape, bias=False), readout)
    model.double().connection.weight.data.copy_(first)
    output.double().connection.weight.data.copy_(last)
    # NEST's low-passes are averages.
    share, out_share = (1 - math.exp(-1 / case[tau]) for tau in ("tau_m", "tau_readout"))
    options = {"time_dim": 0, "carry": False, "graded_input": True}
    rule = la.EProp(case["eta"] * out_share, Fixed(back.T), tc_readout=case["tau_readout"])
    eprop, delta = (RuleTrainer(each, **options) for each in (rule, la.DeltaRule(case["eta"])))
    eprop.register_cell("hidden", model.cell)
    delta.register_cell("output", output.cell)
    losses, fired = [], 0.0
    for _ in case["loss"]:
        hidden.reset(), readout.reset()
        spikes = model(share * x).detach()
        error = (output(out_share * spikes) - target).detach()
        losses.append(error.square().sum().item() / 2)
        fired += spikes.sum().item()
        for rule in (eprop, delta):
            rule(error=error)
        for rule in (eprop, delta):
            rule.update()
    assert losses == pytest.approx(case["loss"], rel=1e-12)
    assert fired == case["spikes"] > 100
    assert losses[-1] < losses[0] - 1
    for found, key, before in ((model, "after", first), (output, "after_out", last)):
        change = found.connection.weight.detach() - before
        assert error_of(change, tensor(case[key]) - before) < 1e-12


def test_voltages_change_weights_as_in_nest_but_for_the_step():
    errors = []
    for case in NEST["clopath"]:
        potential = tensor([case["V_m"]]).T.unsqueeze(1) - case["rest"]
        model = layer(1, 1)
        model.neuron.u = potential
        clopath = la.Clopath(
            case["A_LTP"], -case["A_LTD"], theta_neg=case["theta_minus"] - case["rest"],
            theta_pos=case["theta_plus"] - case["rest"], tc_pre=case["tau_x"], membrane="u",
            tc_potential_pre=case["tau_u_bar_minus"], tc_potential_post=case["tau_u_bar_plus"],
        )  # fmt: skip
        rule = RuleTrainer(clopath, dt=case["dt"], time_dim=0)
        rule.register_cell("cell", model.cell)
        show(model, raster([case["pre"]], len(potential)), torch.zeros_like(potential), 0)
        rule()
        found = model.cell.updater.weight.update(model.connection.weight)
        errors.append(abs(found.item() / case["change"] - 1))
    # NEST integrates the low-passed potentials together with the potential.
    assert errors[0] < 0.02
    assert errors[1] < 0.55 * errors[0]


RATES = {
    "Oja": lambda lr, tau: la.Oja(lr),
    "BCM": lambda lr, tau: la.BCM(lr, tc_threshold=tau),
    "SoftHebb": lambda lr, tau: la.SoftHebb(lr),
}


@pytest.mark.parametrize("name", RATES)
def test_rates_change_weights_as_brians_equations(name):
    case = NEST["rates"][name]
    x, y, before = (tensor(case[key]) for key in ("x", "y", "before"))
    rule = RuleTrainer(RATES[name](case["lr"], case["tau"]))
    found = learned(rule, x.unsqueeze(1), y.unsqueeze(1), before)
    assert error_of(found, tensor(case["after"]) - before) < 1e-12


def test_rewards_change_weights_as_brians_equations():
    case = NEST["MSTDP"]
    expected = tensor(case["after"])
    taus = {"tc_post": case["tau_minus"], "tc_pre": case["tau_plus"]}
    rule = RuleTrainer(la.MSTDP(case["lr_post"], case["lr_pre"], **taus))
    rewards = tensor(case["reward"]).unsqueeze(1)
    found = learned(rule, *sides(case), torch.zeros_like(expected), case["steps"], rewards)
    assert error_of(found, expected) < 1e-12
