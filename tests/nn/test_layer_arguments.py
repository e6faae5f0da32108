"""Arguments and inputs that make no sense are refused by name, with what was found."""

import math

import pytest
import torch
from torch import nn

from lightning_accum import nn as layers
from lightning_accum.nn import LIF, Competition, LeakyIntegrator, RewardBaseline, SurrogateLIF
from lightning_accum.nn import ShortTermPlasticity as Plasticity

ONCE = torch.zeros(2, 1, dtype=torch.int64)
INFINITE = (math.nan, math.inf, -math.inf)
LIF_RANGES = {
    "tc_mem": (0.0, math.nan), "dt": (-1.0, *INFINITE),
    "time_dim": (1,), "inhibition": (0.5, layers.WinnerTakeAll), "spike_dtype": ("bool",),
    "refractory": (-1.0, 8388609.0, 1e18, *INFINITE),
    **dict.fromkeys(("v_threshold", "v_reset", "v_rest"), INFINITE),
}  # fmt: skip
# What is made, the arguments that it needs, and values of each that are refused by its name.
REFUSED = [
    ("LIF", {"size": 2}, LIF_RANGES),
    ("AdaptiveLIF", {"size": 2},
     {**LIF_RANGES, "theta_plus": (-0.1, math.nan, math.inf), "tc_theta": (0.0, math.nan)}),
    *((kind, {"size": 5, "inhibition": layers.WinnerTakeAll(3)}, {"compile": (True,)})
      for kind in ("LIF", "AdaptiveLIF")),
    ("WinnerTakeAll", {}, {"steps": (-1, 1 << 24)}),
    ("LateralInhibition", {}, {"strength": (-0.1, math.nan, math.inf)}),
    ("SurrogateLIF", {"size": 5},
     {"size": (2.5,), "v_threshold": (0.0,), "beta": (math.nan,), "gradient": ("all",),
      "time_dim": (1,), "surrogate": ("triangle",), "dt": (0.0,), "spike_dtype": ("bool",),
      "tc_mem": (-1.0,), "tc_adaptation": (0.0,)}),
    ("LeakyIntegrator", {"size": 5}, {"tc_mem": (0.0,)}),
    *(("SurrogateLIF", {"size": 5, "gradient": each}, {"spike_dtype": (torch.bool,)})
      for each in ("step", "time")),
    ("Competition", {"neuron": nn.Identity(), "size": 3},
     {"neuron": (3,), "winners": (0, 4), "theta_plus": (-1.0,), "tc_drive": (0.0,),
      "time_dim": (1,)}),
    ("DelayedLinear", {"in_features": 3, "out_features": 2, "max_delay": 5.0},
     {"in_features": (-1,), "max_delay": (-1.0, 1e9, 0.02), "dt": (0.0,), "time_dim": (1,),
      "delay": (6.0, torch.ones(3, 2), torch.full((2, 3), torch.nan))}),
    ("DelayedLinear", {"in_features": 3, "out_features": 2, "dt": 4.0}, {"max_delay": (2.0,)}),
    ("PoissonEncoder", {"steps": 2, "max_rate": 5.0},
     {"steps": (0, 2.5), "max_rate": (-1.0, 1001.0, *INFINITE), "dt": (0.0, *INFINITE),
      "norm": (0.0, -1.0, *INFINITE)}),
    ("PoissonEncoder", {"steps": 2, "dt": 2.0}, {"max_rate": (501.0,)}),
    ("ShortTermPlasticity", {"size": 3},
     {"release": (0.0, 1.5), "tc_recovery": (0.0,), "tc_facilitation": (-1.0,), "dt": (0.0,),
      "time_dim": (1,)}),
    ("RewardBaseline", {}, {"decay": (1.0,), "contexts": (0,), "initial": (math.nan,)}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "needed", "values"), REFUSED, ids=str)
def test_arguments(kind, needed, values):
    for name, value in [(name, value) for name, every in values.items() for value in every]:
        with pytest.raises((TypeError, ValueError), match=rf"`{name}` should .*Found .+") as caught:
            getattr(layers, kind)(**{**needed, name: value})
        if not isinstance(value, torch.Tensor):
            names = {getattr(value, "__name__", str(value)), type(value).__name__}
            assert any(each in str(caught.value) for each in names)


@pytest.mark.parametrize(("make", "sizes"), [
    (LIF, (4, 5)), (SurrogateLIF, ((2, 2), (5, 1))), (LeakyIntegrator, ((2, 3), (3, 2))),
    (Plasticity, (4, 5)), (lambda n: Competition(nn.Identity(), n), (4, 5)),
    (lambda n: layers.DelayedLinear(n, 2, 3.0), (4, 5)),
    (lambda delay: layers.DelayedLinear(4, 2, delay), (3.0, 4.0)),
])  # fmt: skip
def test_a_state_of_another_size_is_refused(make, sizes):
    small, large = map(make, sizes)
    large(torch.ones(2, *(large.size if hasattr(large, "size") else [large.in_features])))
    with pytest.raises(RuntimeError, match=r"The state of .* of shape .* Found a tensor of"):
        small.set_extra_state(large.get_extra_state())


def test_inputs():
    x = torch.ones
    calls = [
        (lambda: LIF(2, v_reset=1.0), "`v_threshold` .* Found `v_threshold = 1.0`"),
        (lambda: LIF(2, v_rest=2.0), "`v_threshold` .* Found `v_threshold = 1.0`"),
        (lambda: LIF(5)(x(3, 4)), r"Argument `x` should have shape .* Found `x.shape = "),
        (lambda: LIF(5, time_dim=0)(x(3, 5)), r"`x` should have shape .* Found `x.shape = "),
        (lambda: LIF(5, time_dim=0)(x(2, 3, 4)), r"should have shape .* Found `x.shape = "),
        (lambda: SurrogateLIF(5, time_dim=0)(x(3, 5)), r"\[T, B, 5\].*\(3, 5\)"),
        (lambda: SurrogateLIF(5)(x(2, 3, 5)), r"\[B, 5\].*\(2, 3, 5\)"),
        (lambda: SurrogateLIF((2, 3))(x(4, 6)), r"\[B, 2, 3\].*\(4, 6\)"),
        (lambda: SurrogateLIF((2, 3), time_dim=0)(x(5, 4, 6)), r"\[T, B, 2, 3\].*\(5, 4, 6\)"),
        (lambda: LeakyIntegrator(5, time_dim=0)(x(3, 5)), r"\[T, B, 5\]"),
        (lambda: LeakyIntegrator(5, time_dim=0)(x(4, 3, 6)), r"\[T, B, 5\]"),
        (lambda: Competition(nn.Identity(), 3)(x(2, 4)), r"should have shape \[B, 3\]"),
        (lambda: Plasticity(3)(x(2, 4)), r"\[B, 3\]"),
        (lambda: layers.PoissonEncoder(2, 5.0)(2 * x(1)), "Argument `x`"),
        (lambda: RewardBaseline(contexts=2)(x(1)), "if and only if.* Found none"),
        (lambda: RewardBaseline()(x(1), torch.tensor([0])), "Found a tensor, with"),
        *((lambda o=options: layers.Rewire(**o), words) for options, words in (
            ({"share": 1.5}, "from 0 to 1"), ({"start": -1.0}, "not negative"),
            ({"sign": 0.5}, "1, -1 or None"), ({"share": 0.1, "noise": 0.1}, "those of Deep R"),
        )),
        *((lambda o=options: layers.SparseLinear(3, 2, **o), words) for options, words in (
            ({}, "not both be given"), ({"density": 0.5, "indices": ONCE}, "not both be given"),
            ({"density": 0.0}, "share of inputs"), ({"density": 1.5}, "share of inputs"),
            ({"indices": torch.tensor([[0], [3]])}, "its input, below 3"),
            ({"indices": torch.tensor([[-1], [0]])}, "below 2"),
            ({"indices": torch.ones(2, 3)}, "integers of shape"),
            ({"indices": ONCE.repeat(1, 2)}, "each synapse once"),
        )),
        (lambda: layers.SparseLinear(17, 11, 0.3)(x(2, 16)), "shape"),
    ]  # fmt: skip
    for call, words in calls:
        with pytest.raises(ValueError, match=words):
            call()
    with pytest.raises(TypeError, match="should be a SparseLinear"):
        layers.Rewire(0.1)(nn.Linear(2, 2))
