"""What the optimizers' document says of decays and of new optimizers."""

import copy

import pytest
import torch
from optimizer_cases import CASES, OWN, close, parameters, run, same
from torch import nn
from turns import turns
from values import by_pickle

from lightning_accum.optim import Adam, AdamWarmup, GenericAdaptiveOptimizer, WeightDecay


class L1(WeightDecay):
    """The document's example of another decay."""

    def __call__(self, param, grad, group):
        return grad + group["weight_decay"] * param.sign()


# ---------------------------------------------------------------------- weight decay
@turns("options", [{}, {"foreach": True}, {"capturable": True}])
@pytest.mark.parametrize("name", OWN)
def test_another_decay_is_called_by_every_optimizer(name, options):
    params, others = parameters(), parameters()
    optimizer = CASES[name](params, weight_decay=L1(0.1), **options)
    other = CASES[name](others, weight_decay=0.0)
    for step in range(5):
        run(optimizer, params, 1, step)
        for param, own in zip(others, params, strict=True):  # the gradient with its penalty
            param.grad = own.grad + 0.1 * param.detach().sign()
        other.step()
        close(params, others)
    optimizer.param_groups[0]["weight_decay"] = 0.0
    before = [p.detach().clone() for p in params]
    run(optimizer, params, 1, 5)
    assert not any(map(torch.equal, params, before))


def carried(pair):
    params, optimizer = pair
    fresh = [nn.Parameter(p.detach().clone()) for p in params]
    other = Adam(fresh, weight_decay=type(optimizer.weight_decay)(5.0))
    other.load_state_dict(optimizer.state_dict())
    return fresh, other


@turns("decay", [L1(0.1), WeightDecay(0.1), WeightDecay(0.1, False)])
def test_a_decay_survives_copies_and_checkpoints(decay):
    for way in (carried, copy.deepcopy, by_pickle):
        params = parameters()
        optimizer = Adam(params, lr=0.1, weight_decay=decay)
        run(optimizer, params, 3)
        others, other = way((params, optimizer))
        assert type(other.weight_decay) is type(decay)
        same(run(other, others, 3, 3), run(optimizer, params, 3, 3))


def test_a_decay_gets_the_rate_of_the_step():
    class Recorded(WeightDecay):
        def __call__(self, param, grad, group):
            rates.append(group["lr"])
            return super().__call__(param, grad, group)

    rates = []
    params, others = parameters(), parameters()
    one = AdamWarmup(params, lr=0.1, warmup=4, weight_decay=Recorded(0.1))
    other = AdamWarmup(others, lr=0.1, warmup=4, weight_decay=0.1)
    close(run(one, params, 6), run(other, others, 6))
    assert rates[:: len(params)] == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1, 0.1])
    assert one.param_groups[0]["lr"] == 0.1


def test_groups_have_one_kind_of_decay():
    params = parameters()
    for own, other in ((WeightDecay(0.1), L1(0.1)), (L1(0.1), WeightDecay(0.1))):
        with pytest.raises(ValueError, match=f"class of the optimizer's, `{type(own).__name__}`"):
            Adam([{"params": params, "weight_decay": other}], weight_decay=own)
    optimizer = Adam([{"params": params, "weight_decay": L1(0.3)}], weight_decay=L1(0.1))
    assert optimizer.param_groups[0]["weight_decay"] == 0.3
    with pytest.raises(ValueError, match="another `step_param` or weight decay"):
        run(Adam(params, weight_decay=L1(0.1), fused=True), params, 1)


# ---------------------------------------------------------------------- the template
class Template(GenericAdaptiveOptimizer):
    """Bias-corrected momentum to the document's template, which writes through `.data`."""

    def __init__(self, params, lr, weight_decay=None):
        self.decays = WeightDecay(0.0) if weight_decay is None else weight_decay
        super().__init__(params, self.decays.defaults(), lr, (0.9, 0.999), 1e-8)
        self.weight_decay = self.decays

    def init_state(self, state, group, param):
        state["step"] = 0
        state["m"] = torch.zeros_like(param)

    def step_param(self, state, group, grad, param):
        grad = self.weight_decay(param, grad, group)
        state["m"].mul_(0.9).add_(grad, alpha=0.1)
        state["step"] += 1
        param.data.add_(state["m"], alpha=-group["lr"] / (1 - 0.9 ** state["step"]))


@pytest.mark.parametrize("decay", [None, WeightDecay(0.1), WeightDecay(0.1, False), L1(0.1)])
def test_an_optimizer_by_the_template_takes_its_own_steps(decay):
    weight = nn.Parameter(torch.tensor([2.0], dtype=torch.float64))
    optimizer = Template([weight], 0.5, decay)
    expected, mean = 2.0, 0.0
    for step in range(1, 6):
        weight.grad = torch.tensor([1.0 / step], dtype=torch.float64)
        optimizer.step()
        slope = 1.0 / step
        if type(decay) is L1:
            slope += 0.1 * (expected > 0) - 0.1 * (expected < 0)
        elif decay is not None and decay.weight_decouple:
            expected *= 1 - 0.5 * 0.1
        elif decay is not None:
            slope += 0.1 * expected
        mean = 0.9 * mean + 0.1 * slope
        expected -= 0.5 * mean / (1 - 0.9**step)
        assert weight.item() == pytest.approx(expected, abs=1e-12)
        assert optimizer.state[weight]["step"] == step


def test_a_step_that_a_subclass_defines_is_the_one_that_is_taken():
    class Clipped(Adam):
        def step_param(self, state, group, grad, param):
            super().step_param(state, group, grad.clamp(-0.01, 0.01), param)

    class Signs(Adam):
        def init_state(self, state, group, param):
            state["seen"] = torch.zeros_like(param)

        def step_param(self, state, group, grad, param):
            state["seen"].add_(grad)
            param.sub_(group["lr"] * state["seen"].sign())

    params, others = parameters(), parameters()
    optimizer, other = Clipped(params, eps=0.1), Adam(others, eps=0.1)
    for step in range(4):
        run(optimizer, params, 1, step)
        for param, own in zip(others, params, strict=True):
            param.grad = own.grad.clamp(-0.01, 0.01)
        other.step()
    close(params, others)
    params = parameters()
    kept = [p.detach().clone() for p in params]
    optimizer = Signs(params, lr=0.25)
    run(optimizer, params, 1)
    close(params, [k - 0.25 * p.grad.sign() for p, k in zip(params, kept, strict=True)])
    assert {*optimizer.state[params[0]]} == {"seen"}
    again = Signs(parameters())
    again.load_state_dict(optimizer.state_dict())


@pytest.mark.parametrize("options", [{}, {"capturable": True}, {"foreach": True}])
def test_a_rate_that_a_subclass_defines_is_the_one_that_is_used(options):
    class Halved(Adam):
        def rate(self, group, step):
            return group["lr"] / 2

    params, others = parameters(), parameters()
    close(run(Halved(params, **options), params), run(Adam(others, lr=5e-4), others))
