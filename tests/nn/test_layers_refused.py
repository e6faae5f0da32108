"""Arguments and inputs that make no sense are refused by name, with what was found."""

import math

import pytest
import torch
from torch import nn

from lightning_accum.nn import (
    LIF,
    AdaptiveLIF,
    Competition,
    DelayedLinear,
    LateralInhibition,
    LeakyIntegrator,
    PoissonEncoder,
    RewardBaseline,
    ShortTermPlasticity,
    SurrogateLIF,
    WinnerTakeAll,
)

INFINITE = (math.nan, math.inf, -math.inf)


def finite(*names):
    """Rows of numbers that are not finite."""
    return [({name: bad}, f"Argument `{name}` should") for name in names for bad in INFINITE]


NEURONS = [
    ({"tc_mem": 0.0}, "`tc_mem` should be a positive time constant.* Found `tc_mem = 0.0`"),
    ({"tc_mem": math.nan}, "should be a positive time constant"),
    ({"dt": -1.0}, "`dt` .* Found `dt = -1.0`"),
    ({"v_reset": 1.0}, "`v_threshold` .* Found `v_threshold = 1.0`"),
    ({"v_rest": 2.0}, "`v_threshold` .* Found `v_threshold = 1.0`"),
    ({"refractory": -1.0}, "`refractory` .* Found `refractory = -1.0`"),
    ({"refractory": float((1 << 23) + 1)}, "of at most 8388608 steps"),
    ({"refractory": 1e18}, "of at most 8388608 steps"),
    ({"time_dim": 1}, "`time_dim` .* Found `time_dim = 1`"),
    ({"inhibition": 0.5}, "Argument `inhibition` should be"),
    ({"inhibition": WinnerTakeAll}, r"such as `WinnerTakeAll\(steps=0\)`"),
    ({"spike_dtype": "bool"}, "Argument `spike_dtype` should be"),
    *finite("v_threshold", "v_reset", "v_rest", "refractory", "dt"),
]
ADAPTING = [
    ({"theta_plus": -0.1}, "`theta_plus` .* Found `theta_plus = -0.1`"),
    ({"theta_plus": math.nan}, "Argument `theta_plus` should be finite"),
    ({"theta_plus": math.inf}, "Argument `theta_plus` should be finite"),
    ({"tc_theta": 0.0}, "`tc_theta` .* Found `tc_theta = 0.0`"),
    ({"tc_theta": math.nan}, "should be a positive time constant"),
]
# What is made, the arguments that it needs, and for each wrong one the words.
REFUSED = [
    (LIF, {"size": 2}, NEURONS),
    (AdaptiveLIF, {"size": 2}, NEURONS + ADAPTING),
    (WinnerTakeAll, {}, [({"steps": -1}, "Argument `steps`")]),
    (
        LateralInhibition,
        {},
        [
            ({"strength": -0.1}, "Argument `strength`"),
            ({"strength": math.nan}, "Argument `strength` should be finite"),
            ({"strength": math.inf}, "Argument `strength` should be finite"),
        ],
    ),
    (
        SurrogateLIF,
        {"size": 5},
        [
            ({"size": 2.5}, "`size = 2.5`"),
            ({"v_threshold": 0.0}, "`v_threshold = 0.0`"),
            ({"beta": math.nan}, "`beta`"),
            ({"gradient": "all"}, "`gradient = 'all'`"),
            ({"time_dim": 1}, "`time_dim = 1`"),
            ({"surrogate": "triangle"}, "`surrogate`"),
            ({"tc_mem": -1.0}, "time constant"),
            ({"dt": 0.0}, "`dt = 0.0`"),
            ({"spike_dtype": "bool"}, "`spike_dtype"),
            *(
                ({"gradient": each, "spike_dtype": torch.bool}, "should be a floating-point")
                for each in ("step", "time")
            ),
        ],
    ),
    (
        Competition,
        {"neuron": nn.Identity(), "size": 3},
        [
            ({"neuron": 3}, "`neuron` should be a"),
            ({"winners": 4}, "between 1 and the 3 neurons"),
            ({"winners": 0}, "between 1 and the 3 neurons"),
            ({"theta_plus": -1.0}, "`theta_plus` should be at least 0"),
            ({"tc_drive": 0.0}, "`tc_drive` should be a positive"),
            ({"time_dim": 1}, "`time_dim` should be"),
        ],
    ),
    (
        DelayedLinear,
        {"in_features": 3, "out_features": 2, "max_delay": 5.0},
        [
            ({"in_features": -1}, "`in_features` should be a size"),
            ({"max_delay": -1.0}, "`max_delay` should be from 0"),
            ({"max_delay": 1e9}, "`max_delay` should be from 0"),
            ({"max_delay": 0.02}, r"`max_delay = 0.02`, `dt = 1.0`, .* rounded to 0: .* in ms"),
            ({"max_delay": 2.0, "dt": 4.0}, "`max_delay` should be 0, or more than half a step"),
            ({"delay": 6.0}, r"`delay` should be .* from 0 to `max_delay = 5.0`"),
            ({"delay": torch.ones(3, 2)}, r"of shape \[2, 3\].* Found shape \[3, 2\]"),
            ({"delay": torch.full((2, 3), torch.nan)}, "`delay` should be"),
            ({"dt": 0.0}, "`dt` should be a positive"),
            ({"time_dim": 1}, "`time_dim` should be"),
        ],
    ),
    (
        PoissonEncoder,
        {"steps": 2, "max_rate": 5.0},
        [
            ({"steps": 0}, "Argument `steps` .* Found `steps = "),
            ({"max_rate": -1.0}, "Argument `max_rate` .* Found `max_rate = "),
            ({"max_rate": 1001.0}, "Argument `max_rate` .* Found `max_rate = "),
            ({"max_rate": 501.0, "dt": 2.0}, "Argument `max_rate` .* Found `max_rate = "),
            ({"dt": 0.0}, "Argument `dt` .* Found `dt = "),
            *finite("max_rate", "dt"),
        ],
    ),
    (
        ShortTermPlasticity,
        {"size": 3},
        [
            ({"release": 0.0}, "`release` should be a share"),
            ({"release": 1.5}, "`release` should be a share"),
            ({"tc_recovery": 0.0}, "`tc_recovery` should be a positive"),
            ({"tc_facilitation": -1.0}, "`tc_facilitation` should be a positive"),
            ({"dt": 0.0}, "`dt` should be a positive"),
            ({"time_dim": 1}, "`time_dim` should be"),
        ],
    ),
    (
        RewardBaseline,
        {},
        [
            ({"decay": 1.0}, "`decay` should be at least 0 and below 1"),
            ({"contexts": 0}, "`contexts` should be a positive number"),
            ({"initial": math.nan}, "`initial` should be finite"),
        ],
    ),
]


@pytest.mark.parametrize(
    ("kind", "needed", "rows"), REFUSED, ids=lambda v: getattr(v, "__name__", "")
)
def test_arguments(kind, needed, rows):
    for wrong, words in rows:
        with pytest.raises((TypeError, ValueError), match=words):
            kind(**{**needed, **wrong})


def test_inputs():
    x = torch.ones
    for call, words in [
        (lambda: LIF(5)(x(3, 4)), r"Argument `x` should have shape .* Found shape \["),
        (lambda: LIF(5, time_dim=0)(x(3, 5)), r"Argument `x` should have shape .* Found shape \["),
        (lambda: LIF(5, time_dim=0)(x(2, 3, 4)), r"should have shape .* Found shape \["),
        (lambda: SurrogateLIF(5, time_dim=0)(x(3, 5)), r"\[T, B, 5\].*\[3, 5\]"),
        (lambda: SurrogateLIF(5)(x(2, 3, 5)), r"\[B, 5\].*\[2, 3, 5\]"),
        (lambda: LeakyIntegrator(5, time_dim=0)(x(3, 5)), r"\[T, B, 5\]"),
        (lambda: LeakyIntegrator(5, time_dim=0)(x(4, 3, 6)), r"\[T, B, 5\]"),
        (lambda: Competition(nn.Identity(), 3)(x(2, 4)), r"should have shape \[B, 3\]"),
        (lambda: ShortTermPlasticity(3)(x(2, 4)), r"\[B, 3\]"),
        (lambda: PoissonEncoder(2, 5.0)(2 * x(1)), "Argument `x`"),
        (lambda: RewardBaseline(contexts=2)(x(1)), "if and only if.* Found none"),
        (lambda: RewardBaseline()(x(1), torch.tensor([0])), "Found a tensor, with"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()
