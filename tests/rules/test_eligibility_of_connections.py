"""E-prop and the voltage rule on every connection, in windows that are cut, carried or not."""

from __future__ import annotations

import math

import pytest
import torch
from connections import KINDS
from eprop_reference import eprop
from test_error_windows import (
    ALIF,
    BATCH,
    EPROP,
    STEPS,
    SURROGATE,
    Given,
    change,
    in_windows,
    learn,
    naive_sum,
    setting,
)
from torch import Tensor, nn

import lightning_accum as la

exact = {"rtol": 0.0, "atol": 1e-10}
SHARED = ("linear, tokens", *(kind for kind in KINDS if "conv" in kind or kind == "depthwise"))
MEMORIES: dict[str, dict[str, float]] = {
    "readout": {"tc_readout": 9.0}, "ALIF": ALIF, "both": {"tc_readout": 9.0, **ALIF},
}  # fmt: skip


def derivatives(module: nn.Module, name: str, pre: Tensor) -> Tensor:
    """The derivative of every output by every entry of a parameter, ``[T, B, out, entries]``."""
    param = getattr(module, name).detach()

    def output(value: Tensor, x: Tensor) -> Tensor:
        return torch.func.functional_call(module, {name: value}, (x.unsqueeze(0),)).flatten()

    each = torch.func.vmap(torch.func.jacrev(output), (None, 0))(param, pre.flatten(0, 1))
    return each.flatten(2).unflatten(0, pre.shape[:2]).detach()


@pytest.mark.parametrize(
    # of weights that neurons share, eligibility is not carried: `test_error_windows.py`
    ("kind", "carry"),
    [(k, c) for k in KINDS for c in (True, False) if not (c and k in SHARED)],
)
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("memory", MEMORIES)
def test_eligibility_of_every_synapse(kind: str, memory: str, calls: int, carry: bool) -> None:
    module, params, pre, u, error = setting(kind)
    constants = MEMORIES[memory]
    rule = la.EProp(
        0.3, carry=carry, batch_reduction="sum", params=params, **EPROP, **constants  # type: ignore[arg-type]
    )  # fmt: skip
    learn(rule, module, pre, u, error, calls)
    rule.recording = False  # what is compared below is not activity
    numbers = (
        math.exp(-1 / 9.0) if "tc_readout" in constants else 0.0,
        constants.get("beta", 0.0),
        math.exp(-1 / 25.0),
    )
    psi = SURROGATE.derivative(u - 0.5)
    for param in params:
        ones = torch.ones(STEPS, 1, 1, 1).double()
        seen = pre if param == "bias" else in_windows(pre, calls, carry, 8.0)
        each = derivatives(module, param, seen)
        if param == "bias":  # the weight of an input that is one
            each = each * in_windows(ones, calls, carry, 8.0)
        signals = (values.flatten(2) for values in (error, psi))
        flat = [*signals, each]
        windows = [flat] if carry else list(zip(*(v.chunk(calls) for v in flat), strict=True))
        expected = sum(eprop(*window, *numbers)[0].sum((0, 1)) for window in windows)
        found = change(module, param)
        assert found.any()
        torch.testing.assert_close(found, -0.3 * expected.reshape(found.shape), **exact)  # type: ignore[union-attr]


class OneGain(nn.Module):
    """All neurons share one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(1).double())

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


def test_a_weight_that_leads_to_several_neurons_has_no_eligibility_to_carry() -> None:
    module, u = OneGain(), torch.randn(STEPS, BATCH, 4).double()
    pre, error = torch.randn(STEPS, BATCH, 4).double() > 0, torch.randn(STEPS, BATCH, 4).double()
    rule = la.EProp(0.3, params=("gain",), **EPROP, **ALIF)  # type: ignore[arg-type]
    cell = la.Cell(module, Given(u))
    rule.register_cell("cell", cell)
    for x in pre.double():
        cell.neuron(module(x))
    with pytest.raises(ValueError, match=r"`carry` should be False .* Found `gain` of shape \[1\]"):
        rule(error=error)
    assert la.get_updater(module).gain.empty
    rule(error=error, carry=False)  # the window is still there
    assert change(module, "gain").any()


@pytest.mark.filterwarnings("ignore:`Clopath` should pair spikes")
@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("calls", [1, 3, STEPS])
@pytest.mark.parametrize("u_ref", [None, 0.6])
@pytest.mark.parametrize("kind", KINDS)
def test_the_voltage_rule(kind: str, u_ref: float | None, calls: int, carry: bool) -> None:
    module, params, pre, u, error = setting(kind)
    rule = la.Clopath(
        0.3, 0.2, -0.1, 0.2, u_ref=u_ref, tc_average=30.0, membrane="u", carry=carry,
        params=params, batch_reduction="sum",
    )  # fmt: skip
    learn(rule, module, pre, u, error, calls)
    rule.recording = False
    unit = 2 if isinstance(module, nn.modules.conv._ConvNd) else u.ndim - 1
    rest = [d for d in range(1, u.ndim) if d != unit]
    average, weight, length = torch.zeros(()), 0.0, STEPS // calls
    downs, ups = [], []
    for t in range(STEPS):
        if t == 0 or (t % length == 0 and not carry):  # the average is the neuron's, and stays
            slow, fast = torch.zeros_like(u[0]), torch.zeros_like(u[0])
        slow = math.exp(-1 / 10) * slow + (1 - math.exp(-1 / 10)) * u[t]
        fast = math.exp(-1 / 7) * fast + (1 - math.exp(-1 / 7)) * u[t]
        average = math.exp(-1 / 30) * average + u[t : t + 1].mean(rest, keepdim=True)[0]
        weight = math.exp(-1 / 30) * weight + 1.0
        scale = 1.0 if u_ref is None else (average / weight / u_ref) ** 2
        downs.append(-0.2 * (slow + 0.1).clamp(min=0) * scale)
        ups.append(0.3 / 15 * (u[t] - 0.2).clamp(min=0) * (fast + 0.1).clamp(min=0))
    down, up = torch.stack(downs), torch.stack(ups)
    x_bar = in_windows(pre, calls, carry, 15.0)
    ones = in_windows(torch.ones(STEPS, *[1] * (u.ndim - 1)).double(), calls, carry, 15.0)
    for param in params:
        if param == "bias":  # the weight of an input that is one
            expected = naive_sum(module, param, down + up * ones, pre)
        else:
            expected = naive_sum(module, param, down, pre) + naive_sum(module, param, up, x_bar)
        found = change(module, param)
        assert found.any()
        torch.testing.assert_close(found, expected, **exact)
