"""The defaults of rules are what their pages say: a change of one is a change for everybody."""

import inspect

import lightning_accum as la
from lightning_accum.functional import FastSigmoid, GaussianKernel

OPTIONS = {
    "dt": 1.0, "time_dim": None, "batch_reduction": None, "params": ("weight",), "carry": True,
    "backend": "auto", "picker": None, "graded_input": False,
}  # fmt: skip
PAIR = {"tc_post": 20.0, "tc_pre": 20.0, "trace_mode": "cumulative"}
POTENTIAL = {"surrogate": None, "membrane": "membrane", "threshold": "threshold"}
DEFAULTS = {
    **{name: {} for name in ("AntiHebb", "Hebb", "Homeostasis", "KernelSTDP", "Oja", "Sanger")},
    "BCM": {"tc_threshold": 100.0},
    "Clopath": {
        "tc_potential_pre": 10.0, "tc_potential_post": 7.0, "tc_pre": 15.0, "u_ref": None,
        "tc_average": 1000.0, "membrane": "membrane",
    },
    "Covariance": {"tc_average": 1000.0},
    "DelayAdjustedKernelSTDP": {"delay": "delay"},
    "DelayAdjustedSTDP": {"delay": "delay", "tc_post": 20.0, "tc_pre": 20.0},
    "DeltaRule": {"tc_readout": None},
    "EProp": {
        **POTENTIAL, **dict.fromkeys(("tc_mem", "feedback", "tc_readout", "beta", "tc_adaptation")),
        "regularization": 0.0, "target_rate": 10.0,
    },
    "InhibitorySTDP": {"target_rate": 5.0, "tc": 20.0},
    "MSTDP": {**PAIR, "reward": None},
    "MSTDPET": {**PAIR, "tc_eligibility": 25.0, "reward": None},
    "OTTT": {**POTENTIAL, "tc_mem": None, "tc_next": None},
    "SoftHebb": {"temperature": 1.0},
    "STDP": {**PAIR, "pairing": "symmetric"},
    "STLLR": {**POTENTIAL, "tc_post": 1.5, "tc_pre": 3.5, "surrogate": FastSigmoid(100.0)},
    "TripletSTDP": {
        "tc_post_fast": 33.7, "tc_post_slow": 114.0, "tc_pre_fast": 16.8, "tc_pre_slow": 101.0,
        "trace_mode": "cumulative",
    },
    "WTAHebb": {"winners": 1},
    "WeightDependentSTDP": {
        **PAIR, "power_pos": 1.0, "power_neg": 1.0, "w_min": 0.0, "w_max": 1.0,
    },
}  # fmt: skip
OF_GRADIENTS = {"OTTT", "STLLR"}


def rules():
    every = {name: getattr(la, name) for name in la.__all__}
    kinds = {n: t for n, t in every.items() if inspect.isclass(t) and issubclass(t, la.Rule)}
    return {name: kind for name, kind in kinds.items() if not inspect.isabstract(kind)}


def test_every_rule_stands_here():
    assert set(rules()) == set(DEFAULTS)


def test_the_defaults_of_every_rule_and_of_its_trainer():
    for name, kind in [*rules().items(), ("RuleTrainer", la.RuleTrainer)]:
        every = inspect.signature(kind).parameters.values()
        found = {p.name: p.default for p in every if p.default is not p.empty}
        expected = {"RuleTrainer": OPTIONS, **DEFAULTS}[name]
        assert found == expected, name
        assert all(type(found[k]) is type(v) for k, v in expected.items()), name
        if kind is la.RuleTrainer:
            continue
        needed = [p.name for p in every if p.default is p.empty]
        given = {each: GaussianKernel(0.1) if each == "kernel" else 0.1 for each in needed}
        reduction = la.RuleTrainer(kind(**given)).options.batch_reduction
        assert reduction == ("sum" if name in OF_GRADIENTS else "mean")
