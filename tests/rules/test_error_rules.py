"""Rules with an error on every connection that they take, in pieces and with what is carried."""

import copy
import itertools
import math
from functools import partial

import pytest
import torch
from clamped_layers import raster
from connections import KINDS
from eprop_reference import eprop, low_pass
from rule_trainers import trainer_of
from torch import nn

import lightning_accum as la
from lightning_accum import Cell, get_updater
from lightning_accum.engine import window_changes as run_module
from lightning_accum.functional import FastSigmoid
from lightning_accum.nn import Linear, SurrogateLIF
from lightning_accum.sparse.kernel_library import Scratch

exact = {"rtol": 0.0, "atol": 1e-10}
STEPS, BATCH = 12, 3
SURROGATE = FastSigmoid(2.0)
ALIF = {"beta": 0.4, "tc_adaptation": 25.0}
MEMORIES = {
    "readout": {"tc_readout": 9.0}, "ALIF": ALIF, "both": {"tc_readout": 9.0, **ALIF},
}  # fmt: skip
SHARED = tuple(k for k in KINDS if any(word in k for word in ("conv", "depthwise", "tokens")))
WAYS = ((1, True), (3, False), (STEPS, True), (3, True))  # calls, and whether they carry
POTENTIAL = {"threshold": 0.5, "surrogate": SURROGATE, "membrane": "u"}
EPROP = {"tc_mem": 8.0, **POTENTIAL}


class Given(nn.Module):
    """A neuron whose potential in each step is given, and whose output has a gradient."""

    def __init__(self, u):
        super().__init__()
        self.all, self.u, self.t = u, u[0], 0

    def forward(self, x):
        self.u = self.all[self.t]
        self.t += 1
        return (self.u > 0.5).double().requires_grad_()


def change(module, name):
    pending = getattr(get_updater(module), name)
    parts = [torch.zeros(()) if part is None else part for part in (pending.pos, pending.neg)]
    return parts[0] - parts[1]


def naive_sum(module, name, post, pre):
    """Sums products of both sides over steps and samples, by autograd of the connection."""
    params = {k: v.detach().clone() for k, v in module.named_parameters()}
    params[name].requires_grad_()
    out = torch.func.functional_call(module, params, (pre.flatten(0, 1),))
    return torch.autograd.grad(out, params[name], post.flatten(0, 1).reshape(out.shape))[0]


def in_windows(values, calls, carry, tc):
    """Low-passes values, from rest in each window unless it carries over."""
    windows = [values] if carry else values.chunk(calls)
    return torch.cat([low_pass(window, tc) for window in windows])


def setting(kind):
    """A connection, its parameters, and its input, potentials and errors in every step."""
    torch.manual_seed(3)
    make, shape, params = KINDS[kind]
    module = make().double()
    pre = raster(STEPS, BATCH, *shape, seed=4)
    u, error = (torch.randn(STEPS, *module(pre[0]).shape).double() for _ in range(2))
    return module, params, pre, u, error


def learn(rule, module, pre, u, error, calls):
    """Shows all steps, calls the rule ``calls`` times, and returns the cell to keep it."""
    neuron = Given(u)
    cell = Cell(module, neuron)
    rule.register_cell("cell", cell)
    for x, e in zip(pre.chunk(calls), error.chunk(calls), strict=True):
        for now, given in zip(x, e, strict=True):
            y = neuron(module(now))
            if isinstance(rule.rule, la.OTTT):
                (y * given).sum().backward()
        rule(**({} if isinstance(rule.rule, (la.OTTT, la.Clopath)) else {"error": e}))
    return cell


def close(found, expected, case):
    torch.testing.assert_close(found, expected, **exact, msg=lambda text: f"{case}: {text}")


def low_passed(rule, pre, u, way, tc):
    """The traces of the input, and of an input that is one."""
    rule.recording = False  # what is compared from here on is not activity
    ones = torch.ones(STEPS, *[1] * (u.ndim - 1)).double()
    return in_windows(pre, *way, tc), in_windows(ones, *way, tc)


def every(kinds=KINDS):
    """Every kind of connection, each way to cut a sequence."""
    return itertools.product(kinds, WAYS)


MAKERS = {
    "DeltaRule": partial(trainer_of, la.DeltaRule, 0.3, tc_readout=8.0),
    "OTTT": partial(trainer_of, la.OTTT, 0.3, **EPROP),
    "EProp": partial(trainer_of, la.EProp, 0.3, **EPROP),
    "Clopath": partial(trainer_of, la.Clopath, 0.3, -0.2, 0.1, 0.5, membrane="u"),
    "Clopath, u_ref": partial(
        trainer_of, la.Clopath, 0.3, -0.2, 0.1, 0.5, u_ref=0.4, tc_average=30.0, membrane="u"
    ),
    "EProp, readout": partial(trainer_of, la.EProp, 0.3, tc_readout=9.0, **EPROP),
    "EProp, ALIF": partial(trainer_of, la.EProp, 0.3, **ALIF, **EPROP),
    "EProp, both": partial(
        trainer_of, la.EProp, 0.3, tc_readout=9.0, regularization=0.2, **ALIF, **EPROP
    ),
}


def voltage(u, u_ref, calls, carry, unit):
    """The depressing signal of the voltage rule, and the potentiating one, in every step."""
    rest = [d for d in range(1, u.ndim) if d != unit]
    average, weight, downs, ups = torch.zeros(()), 0.0, [], []
    for t in range(STEPS):
        if t == 0 or (t % (STEPS // calls) == 0 and not carry):  # the average stays
            slow, fast = torch.zeros_like(u[0]), torch.zeros_like(u[0])
        slow = math.exp(-1 / 10) * slow + (1 - math.exp(-1 / 10)) * u[t]
        fast = math.exp(-1 / 7) * fast + (1 - math.exp(-1 / 7)) * u[t]
        average = math.exp(-1 / 30) * average + u[t : t + 1].mean(rest, keepdim=True)[0]
        weight = math.exp(-1 / 30) * weight + 1.0
        scale = 1.0 if u_ref is None else (average / weight / u_ref) ** 2
        downs.append(-0.2 * (slow - 0.1).clamp(min=0) * scale)
        ups.append(0.3 / 15 * (u[t] - 0.5).clamp(min=0) * (fast - 0.1).clamp(min=0))
    return [torch.stack(downs), torch.stack(ups)]


@pytest.mark.filterwarnings("ignore:`Clopath` should pair spikes")
@pytest.mark.parametrize("name", [name for name in MAKERS if not name.startswith("EProp,")])
def test_without_eligibility_every_connection_learns(name):
    for kind, way in every():
        module, params, pre, u, error = setting(kind)
        rule = MAKERS[name](params=params, batch_reduction="sum", carry=way[1])
        learn(rule, module, pre, u, error, way[0])
        posts, tc = [-0.3 * error, -0.3 * error * SURROGATE.derivative(u - 0.5)], 8.0
        posts = posts[:1] if name == "DeltaRule" else posts[1:]
        if name.startswith("Clopath"):
            unit = 2 if isinstance(module, nn.modules.conv._ConvNd) else u.ndim - 1
            posts, tc = voltage(u, 0.4 if "u_ref" in name else None, *way, unit), 15.0
        traced, ones = low_passed(rule, pre, u, way, tc)
        for param in params:
            expected = 0.0
            for post in posts:  # the depression of the voltage rule is by spikes, not by traces
                plain = len(posts) == 2 and post is posts[0]
                if param == "bias":  # the weight of an input that is one, whose trace multiplies
                    expected += naive_sum(module, param, post * (1.0 if plain else ones), pre)
                else:
                    expected += naive_sum(module, param, post, pre if plain else traced)
            found = change(module, param)
            assert found.any()
            close(found, expected, (kind, way, param))


def derivatives(module, name, pre):
    """The derivative of every output by every entry of a parameter, ``[T, B, out, entries]``."""
    param = getattr(module, name).detach()

    def output(value, x):
        return torch.func.functional_call(module, {name: value}, (x.unsqueeze(0),)).flatten()

    each = torch.func.vmap(torch.func.jacrev(output), (None, 0))(param, pre.flatten(0, 1))
    return each.flatten(2).unflatten(0, pre.shape[:2]).detach()


@pytest.mark.parametrize("memory", MEMORIES)
def test_eligibility_of_every_synapse(memory):
    constants, psi_of = MEMORIES[memory], SURROGATE.derivative
    numbers = (
        math.exp(-1 / 9.0) if "tc_readout" in constants else 0.0,
        constants.get("beta", 0.0),
        math.exp(-1 / 25.0),
    )
    for kind, (calls, carry) in every():
        if carry and kind in SHARED:
            continue  # see `test_eligibility_of_shared_weights_is_not_carried`
        module, params, pre, u, error = setting(kind)
        rule = la.RuleTrainer(
            la.EProp(0.3, **EPROP, **constants), carry=carry, batch_reduction="sum", params=params
        )
        learn(rule, module, pre, u, error, calls)
        traced, ones = low_passed(rule, pre, u, (calls, carry), 8.0)
        for param in params:
            each = derivatives(module, param, pre if param == "bias" else traced)
            if param == "bias":  # the weight of an input that is one
                each = each * ones.reshape(STEPS, 1, 1, 1)
            flat = [*(values.flatten(2) for values in (error, psi_of(u - 0.5))), each]
            windows = [flat] if carry else list(zip(*(v.chunk(calls) for v in flat), strict=True))
            expected = sum(eprop(*window, *numbers)[0].sum((0, 1)) for window in windows)
            found = change(module, param)
            assert found.any()
            close(found, -0.3 * expected.reshape(found.shape), (kind, calls, carry, param))


class OneGain(nn.Module):
    """All neurons share one weight."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.rand(1).double())

    def forward(self, x):
        return x * self.gain


def test_eligibility_of_shared_weights_is_not_carried():
    u, given = torch.randn(STEPS, BATCH, 4).double(), torch.randn(STEPS, BATCH, 4).double()
    cases = {kind: setting(kind) for kind in ("conv2d", "linear, tokens")}
    cases["gain"] = OneGain(), ("gain",), (torch.randn(STEPS, BATCH, 4) > 0).double(), u, given
    for module, names, pre, u, error in cases.values():
        for name, memory in itertools.product(names, ("readout", "ALIF")):
            rule = la.RuleTrainer(la.EProp(0.3, **EPROP, **MEMORIES[memory]), params=name)
            cell = Cell(module, Given(u))
            rule.register_cell("cell", cell)
            for x in pre:
                cell.neuron(module(x))
            words = f"Found `carry = True` for `{name}` of shape"
            with pytest.raises(ValueError, match=f"`carry` should be False .* {words}.*make"):
                rule(error=error)
            assert getattr(get_updater(module), name).empty
            rule(error=error, carry=False)  # the window is still there
            assert change(module, name).any()
            get_updater(module).clear()


@pytest.mark.parametrize("name", MAKERS)
def test_pieces_of_a_window_are_the_whole(name, monkeypatch):
    for reduce, carry in (("sum", True), ("sum", False), ("mean", False), ("amax", True)):
        found = []
        for elements in (1 << 23, 100, 1):  # all steps at once, a few, one
            monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", elements)
            module, params, pre, u, error = setting("linear")
            rule = MAKERS[name](params=params, batch_reduction=reduce, carry=carry)
            learn(rule, module, pre, u, error, calls=3)  # windows begin with what is carried
            rule.eval()
            found.append([change(module, param) for param in params])
        assert all(each.any() for each in found[0])
        for other in found[1:]:
            torch.testing.assert_close(other, found[0], **exact)


def test_what_is_pending_does_not_stand_in_work_memory():
    for steps, carry in itertools.product((1, 3, 40), (False, True)):
        torch.manual_seed(0)
        fc = Linear(50, 40)
        lif = SurrogateLIF(40, beta=0.3, time_dim=0, spike_dtype=torch.bool)
        rule = la.RuleTrainer(la.EProp(0.1, tc_readout=9.0), time_dim=0, carry=carry)
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
