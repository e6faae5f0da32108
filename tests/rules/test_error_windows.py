"""Rules with an error on every connection that they take, in pieces and with what is carried."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from connections import KINDS
from eprop_reference import eprop
from rasters import raster
from torch import Tensor, nn

import lightning_accum as la
from lightning_accum import Cell, get_updater
from lightning_accum.engine import accumulate as run_module
from lightning_accum.functional import FastSigmoid
from lightning_accum.nn import Linear, SurrogateLIF
from lightning_accum.sparse.library import Scratch

exact = {"rtol": 0.0, "atol": 1e-10}
STEPS, BATCH = 12, 3
SURROGATE = FastSigmoid(2.0)
ALIF = {"beta": 0.4, "tc_adaptation": 25.0}
EPROP = {"tc_mem": 8.0, "threshold": 0.5, "surrogate": SURROGATE, "membrane": "u"}


class Given(nn.Module):
    """A neuron whose potential in each step is given, and whose output has a gradient."""

    def __init__(self, u: Tensor) -> None:
        super().__init__()
        self.all, self.u, self.t = u, u[0], 0

    def forward(self, x: Tensor) -> Tensor:
        self.u = self.all[self.t]
        self.t += 1
        return (self.u > 0.5).double().requires_grad_()


def change(module: nn.Module, name: str) -> Tensor:
    pending = getattr(get_updater(module), name)
    parts = [torch.zeros(()) if part is None else part for part in (pending.pos, pending.neg)]
    return parts[0] - parts[1]


def naive_sum(module: nn.Module, name: str, post: Tensor, pre: Tensor) -> Tensor:
    """Sums products of both sides over steps and samples, by autograd of the connection."""
    params = {k: v.detach().clone() for k, v in module.named_parameters()}
    params[name].requires_grad_()
    out = torch.func.functional_call(module, params, (pre.flatten(0, 1),))
    return torch.autograd.grad(out, params[name], post.flatten(0, 1).reshape(out.shape))[0]


def low_pass(values: Tensor, tc: float) -> Tensor:
    rows = [values[0]]
    for now in values[1:]:
        rows.append(math.exp(-1 / tc) * rows[-1] + now)
    return torch.stack(rows)


def in_windows(values: Tensor, calls: int, carry: bool, tc: float) -> Tensor:
    """Low-passes values, from rest in each window unless it carries over."""
    windows = [values] if carry else values.chunk(calls)
    return torch.cat([low_pass(window, tc) for window in windows])


def setting(kind: str) -> tuple[nn.Module, tuple[str, ...], Tensor, Tensor, Tensor]:
    """A connection, its parameters, and its input, potentials and errors in every step."""
    torch.manual_seed(3)
    make, shape, params = KINDS[kind]
    module = make().double()
    pre = raster(STEPS, BATCH, *shape, seed=4)
    u, error = (torch.randn(STEPS, *module(pre[0]).shape).double() for _ in range(2))
    return module, params, pre, u, error


def learn(
    rule: la.Rule, module: nn.Module, pre: Tensor, u: Tensor, error: Tensor, calls: int
) -> Cell:
    """Shows all steps, calls the rule ``calls`` times, and returns the cell to keep it."""
    neuron = Given(u)
    cell = Cell(module, neuron)
    rule.register_cell("cell", cell)
    for x, e in zip(pre.chunk(calls), error.chunk(calls), strict=True):
        for now, given in zip(x, e, strict=True):
            y = neuron(module(now))
            if isinstance(rule, la.OTTT):
                (y * given).sum().backward()
        rule(**({} if isinstance(rule, (la.OTTT, la.Clopath)) else {"error": e}))
    return cell


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("calls", [1, 3, STEPS])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["DeltaRule", "OTTT", "EProp"])
def test_without_eligibility_every_connection_learns(
    name: str, kind: str, calls: int, carry: bool
) -> None:
    module, params, pre, u, error = setting(kind)
    options: dict[str, Any] = {"params": params, "batch_reduction": "sum", "carry": carry}
    if name == "DeltaRule":
        rule: la.Rule = la.DeltaRule(0.3, 8.0, **options)
        post = error
    else:
        rule = (la.OTTT if name == "OTTT" else la.EProp)(0.3, **EPROP, **options)
        post = error * SURROGATE.derivative(u - 0.5)
    learn(rule, module, pre, u, error, calls)
    rule.recording = False  # what is compared below is not activity
    for param in params:
        seen = in_windows(pre, calls, carry, 8.0)
        if param == "bias":  # the weight of an input that is one, whose trace multiplies the output
            ones = torch.ones(STEPS, *[1] * (post.ndim - 1)).double()
            ones = in_windows(ones, calls, carry, 8.0)
            expected = naive_sum(module, param, post * ones, pre)
        else:
            expected = naive_sum(module, param, post, seen)
        torch.testing.assert_close(change(module, param), -0.3 * expected, **exact)


@pytest.mark.parametrize("neuron", [{}, ALIF], ids=["LIF", "ALIF"])
@pytest.mark.parametrize("tc_readout", [None, 9.0])
def test_a_convolution_learns_by_the_eligibility_of_each_of_its_places(
    neuron: dict[str, float], tc_readout: float | None
) -> None:
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 3, 2, stride=2, padding=1).double()
    pre = raster(STEPS, BATCH, 2, 4, 4, seed=1)
    u, error = (torch.randn(STEPS, *conv(pre[0]).shape).double() for _ in range(2))
    rule = la.EProp(
        0.3, tc_readout=tc_readout, carry=False, batch_reduction="sum",
        params=("weight", "bias"), **EPROP, **neuron,
    )  # fmt: skip
    learn(rule, conv, pre, u, error, calls=1)
    # every place of the output is a neuron with a copy of the weights, which sees its own patch
    patches = nn.functional.unfold(pre.flatten(0, 1), 2, padding=1, stride=2)
    patches = patches.unflatten(0, (STEPS, BATCH)).movedim(-1, 0)
    constants = (
        0.0 if tc_readout is None else math.exp(-1 / tc_readout),
        neuron.get("beta", 0.0),
        math.exp(-1 / 25.0),
    )
    total, bias = 0.0, 0.0
    ones = torch.ones(STEPS, BATCH, 1).double()
    psi = SURROGATE.derivative(u - 0.5)
    for place, patch in enumerate(patches):
        mine = (error.flatten(3)[..., place], psi.flatten(3)[..., place])
        total += eprop(*mine, low_pass(patch, 8.0), *constants)[0].sum(0)
        bias += eprop(*mine, low_pass(ones, 8.0), *constants)[0].sum(0)
    assert conv(pre[0])[0, 0].numel() == len(patches) == 9
    torch.testing.assert_close(change(conv, "weight").flatten(1), -0.3 * total, **exact)
    torch.testing.assert_close(change(conv, "bias")[:, None], -0.3 * bias, **exact)


@pytest.mark.parametrize("kind", ["conv2d", "linear, tokens"])
@pytest.mark.parametrize("memory", [{"tc_readout": 9.0}, ALIF], ids=["readout", "ALIF"])
def test_eligibility_of_shared_weights_is_not_carried(kind: str, memory: dict[str, float]) -> None:
    module, _, pre, u, error = setting(kind)
    rule = la.EProp(0.3, **EPROP, **memory)
    message = r"`carry` should be False for a connection whose neurons share .*make the rule with"
    cell = Cell(module, Given(u))
    rule.register_cell("cell", cell)
    for x in pre:
        cell.neuron(module(x))
    with pytest.raises(ValueError, match=message):
        rule(error=error)
    assert get_updater(module).weight.empty
    rule(error=error, carry=False)  # the window is still there
    assert change(module, "weight").any()


MAKERS: dict[str, Callable[..., la.Rule]] = {
    "EProp": lambda **o: la.EProp(0.3, **EPROP, **o),
    "EProp, readout": lambda **o: la.EProp(0.3, tc_readout=9.0, **EPROP, **o),
    "EProp, ALIF": lambda **o: la.EProp(0.3, **ALIF, **EPROP, **o),
    "EProp, both": lambda **o: la.EProp(0.3, tc_readout=9.0, lr_rate=0.2, **ALIF, **EPROP, **o),
    "OTTT": lambda **o: la.OTTT(0.3, **EPROP, **o),
    "DeltaRule": lambda **o: la.DeltaRule(0.3, 8.0, **o),
    "Clopath": lambda **o: la.Clopath(0.3, 0.2, -0.1, 0.2, u_ref=0.6, membrane="u", **o),
}


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("reduce", ["sum", "mean", "amax"])
@pytest.mark.parametrize("name", MAKERS)
def test_pieces_of_a_window_are_the_whole(
    name: str, reduce: str, carry: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for elements in (1 << 23, 100, 1):  # all steps at once, a few, one
        monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", elements)
        module, params, pre, u, error = setting("linear")
        rule = MAKERS[name](params=params, batch_reduction=reduce, carry=carry)
        cell = learn(rule, module, pre, u, error, calls=3)  # windows begin with what is carried
        rule.eval()
        assert isinstance(cell.neuron, Given)
        found.append([change(module, param) for param in params])
    assert all(each.any() for each in found[0])
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], **exact)


@pytest.mark.parametrize("steps", [1, 3, 40])
@pytest.mark.parametrize("carry", [False, True])
def test_what_is_pending_does_not_stand_in_work_memory(steps: int, carry: bool) -> None:
    torch.manual_seed(0)
    fc = Linear(50, 40)
    lif = SurrogateLIF(40, beta=0.3, time_dim=0, spike_dtype=torch.bool)
    rule = la.EProp(0.1, tc_readout=9.0, time_dim=0, carry=carry)
    rule.register_cell("cell", Cell(fc, lif))
    lif(fc(torch.rand(steps, 1, 50) < 0.3))
    rule(error=torch.randn(steps, 1, 40))
    weight, carried = get_updater(fc).weight, rule.state_of("cell").carried
    kept = copy.deepcopy((weight, dict(carried)))
    with Scratch() as scratch:
        for _ in range(8):
            scratch.empty((1 << 10,), torch.float32, torch.device("cpu")).fill_(torch.nan)
    assert weight.neg.any()
    assert torch.equal(weight.neg, kept[0].neg)
    assert len(carried) == 3 * carry
    assert all(torch.equal(value, kept[1][key]) for key, value in carried.items())
