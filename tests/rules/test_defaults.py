"""The defaults of rules are what their pages say: a change of one is a change for everybody."""

import inspect

import lightning_accum as la
from lightning_accum.functional import FastSigmoid

EVERY = {
    "dt": 1.0, "batch_reduction": "mean", "time_dim": None, "params": ("weight",), "carry": True,
    "backend": "auto", "picker": None, "graded_input": False,
}  # fmt: skip
PAIR = {**EVERY, "tc_post": 20.0, "tc_pre": 20.0, "trace_mode": "cumulative"}
POTENTIAL = {
    **EVERY, "surrogate": None, "membrane": "membrane", "threshold": "threshold",
}  # fmt: skip
DEFAULTS = {
    **dict.fromkeys(("AntiHebb", "Hebb", "Homeostasis", "KernelSTDP", "Oja", "Sanger"), EVERY),
    "BCM": {**EVERY, "tc_threshold": 100.0},
    "Clopath": {
        **EVERY, "tc_potential_pre": 10.0, "tc_potential_post": 7.0, "tc_pre": 15.0, "u_ref": None,
        "tc_average": 1000.0, "membrane": "membrane",
    },
    "Covariance": {**EVERY, "tc_average": 1000.0},
    "DelayAdjustedKernelSTDP": {**EVERY, "delay": "delay"},
    "DelayAdjustedSTDP": {**EVERY, "delay": "delay", "tc_post": 20.0, "tc_pre": 20.0},
    "DeltaRule": {**EVERY, "tc_readout": None},
    "EProp": {
        **POTENTIAL, **dict.fromkeys(("tc_mem", "feedback", "tc_readout", "beta", "tc_adaptation")),
        "regularization": 0.0, "target_rate": 10.0,
    },
    "InhibitorySTDP": {**EVERY, "target_rate": 5.0, "tc": 20.0},
    "MSTDP": {**PAIR, "reward": None},
    "MSTDPET": {**PAIR, "tc_eligibility": 25.0, "reward": None},
    "OTTT": {**POTENTIAL, "tc_mem": None, "tc_next": None, "batch_reduction": "sum"},
    "SoftHebb": {**EVERY, "temperature": 1.0},
    "STDP": {**PAIR, "pairing": "symmetric"},
    "STLLR": {
        **POTENTIAL, "tc_post": 1.5, "tc_pre": 3.5, "surrogate": FastSigmoid(100.0),
        "batch_reduction": "sum",
    },
    "TripletSTDP": {
        **EVERY, "tc_post_fast": 33.7, "tc_post_slow": 114.0, "tc_pre_fast": 16.8,
        "tc_pre_slow": 101.0, "trace_mode": "cumulative",
    },
    "WTAHebb": {**EVERY, "winners": 1},
    "WeightDependentSTDP": {
        **PAIR, "power_pos": 1.0, "power_neg": 1.0, "w_min": 0.0, "w_max": 1.0,
    },
}  # fmt: skip


def defaults(rule):
    every = inspect.signature(rule).parameters.values()
    return {p.name: p.default for p in every if p.default is not p.empty}


def test_every_rule_stands_here():
    rules = {
        n for n in la.__all__ if inspect.isclass(t := getattr(la, n)) and issubclass(t, la.Rule)
    }
    assert {n for n in rules if not inspect.isabstract(getattr(la, n))} == set(DEFAULTS)


def test_the_defaults_of_every_rule():
    for name, expected in {**DEFAULTS, "Rule": EVERY}.items():
        found = defaults(getattr(la, name))
        assert found == expected, name
        assert all(type(found[k]) is type(v) for k, v in expected.items()), name
