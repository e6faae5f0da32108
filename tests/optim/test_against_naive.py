"""The optimizers against naive formulas, and whatever happens between steps against plain ones."""

import copy
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from optimizer_cases import ADAM, CASES, close, give_gradients, parameters, run
from round_trips import by_file, by_pickle
from subtests import turns
from torch import nn

from lightning_accum.optim import AdaBelief, AdamWarmup, WeightDecay
from lightning_accum.optim._moment_optimizer import rectification

STEPS = 25


def begin(decay, g, weight, rate):
    """The slope with its penalty, and the weight after its decay."""
    if not decay.weight_decouple:
        return g + decay.weight_decay * weight, weight
    return g, weight * (1 - decay.weight_decay * (1 if decay.absolute else rate))


def adam_like(
    slopes, weight, rate, betas, eps, decay, *, belief=False, amsgrad=False, eps_beside=False
):
    """Adam and its kin on one number, from the papers' algorithms; yields the weight."""
    m = v = top = 0.0
    beta1, beta2 = betas
    for t, slope in enumerate(slopes, 1):
        g, weight = begin(decay, slope, weight, rate(t))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * ((g - m) ** 2 if belief else g**2) + belief * eps
        top = max(top, v) if amsgrad else v
        if eps_beside:
            size = rate(t) * math.sqrt(1 - beta2**t) / (1 - beta1**t)
            weight -= size * m / (math.sqrt(top) + eps)
        else:
            m_hat, v_hat = m / (1 - beta1**t), top / (1 - beta2**t)
            weight -= rate(t) * m_hat / (math.sqrt(v_hat) + eps)
        yield weight


def rectified(slopes, weight, rate, betas, eps, decay, *, belief=False, momentum=True):
    """RAdam's algorithm on one number, the second moment AdaBelief's if so asked."""
    m = v = 0.0
    beta1, beta2 = betas
    rho_inf = 2 / (1 - beta2) - 1
    for t, slope in enumerate(slopes, 1):
        g, weight = begin(decay, slope, weight, rate(t))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * ((g - m) ** 2 if belief else g**2) + (eps if belief else 0)
        m_hat = m / (1 - beta1**t)
        rho = rho_inf - 2 * t * beta2**t / (1 - beta2**t)
        if rho >= 5:
            r = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
            weight -= rate(t) * math.sqrt(r * (1 - beta2**t)) * m_hat / (math.sqrt(v) + eps)
        elif momentum:
            weight -= rate(t) * m_hat
        yield weight


def momentum(slopes, weight, rate, betas, eps, decay):
    """What `step_param` of a template does."""
    m = 0.0
    for t, slope in enumerate(slopes, 1):
        g, weight = begin(decay, slope, weight, rate(t))
        m = betas[0] * m + (1 - betas[0]) * g
        weight -= rate(t) * m
        yield weight


def constant(rate):
    return lambda t: rate


def cosine(t):
    progress = min(max((t - 3) / 17, 0.0), 1.0)
    return 0.01 * min(1.0, t / 3) * 0.5 * (1 + math.cos(math.pi * progress))


REFERENCES = {
    "adam": (adam_like, constant(0.01), (0.9, 0.999), 1e-8, {}),
    "adam-optimized": (adam_like, constant(0.01), (0.9, 0.999), 1e-8, {"eps_beside": True}),
    "amsgrad": (adam_like, constant(0.01), (0.9, 0.999), 1e-8, {"amsgrad": True}),
    "warmup": (adam_like, lambda t: 0.01 * min(1, t / 7), (0.9, 0.999), 1e-8, {}),
    "warmup-amsgrad": (
        adam_like, lambda t: 0.01 * min(1, t / 7), (0.9, 0.999), 1e-8, {"amsgrad": True}
    ),
    "noam": (
        adam_like, lambda t: 0.5 * 16**-0.5 * min(t**-0.5, t * 7**-1.5), (0.9, 0.98), 1e-9, {}
    ),
    "cosine": (adam_like, cosine, (0.9, 0.999), 1e-8, {}),
    "radam": (rectified, constant(0.01), (0.9, 0.999), 1e-8, {}),
    "radam-still": (rectified, constant(0.01), (0.9, 0.999), 1e-8, {"momentum": False}),
    "adabelief": (adam_like, constant(0.01), (0.9, 0.999), 1e-16, {"belief": True}),
    "adabelief-amsgrad": (
        adam_like, constant(0.01), (0.9, 0.999), 1e-8, {"belief": True, "amsgrad": True}
    ),
    "adabelief-rectified": (rectified, constant(0.01), (0.9, 0.999), 1e-16, {"belief": True}),
    "one-at-a-time": (momentum, constant(0.01), (0.9, 0.0), 0.0, {}),
}  # fmt: skip


DECAYED = [
    (False, WeightDecay()), (True, WeightDecay(0.1)), (True, WeightDecay(0.1, False)),
    (False, WeightDecay(0.001, absolute=True)),
]  # fmt: skip


@turns("way", [{}, {"foreach": True}, {"foreach": False}, {"capturable": True}])
@turns("maximize, decay", DECAYED)
@pytest.mark.parametrize("name", REFERENCES)
def test_every_number_goes_as_the_papers_say(name, maximize, decay, way):
    reference, rate, betas, eps, options = REFERENCES[name]
    params = parameters()
    optimizer = CASES[name](params, maximize=maximize, weight_decay=decay, **way)
    follow = [(i, j) for i, p in enumerate(params) for j in {0, p.numel() // 2, p.numel() - 1}]
    begun = {(i, j): params[i].detach().reshape(-1)[j].item() for i, j in follow}
    slopes = {key: [] for key in follow}
    found = {key: [] for key in follow}
    for step in range(STEPS):
        give_gradients(params, step)
        for i, j in follow:
            slopes[i, j].append((1 - 2 * maximize) * params[i].grad.reshape(-1)[j].item())
        optimizer.step()
        for i, j in follow:
            found[i, j].append(params[i].detach().reshape(-1)[j].item())
    for key in follow:
        expected = list(reference(slopes[key], begun[key], rate, betas, eps, decay, **options))
        assert found[key] == pytest.approx(expected, rel=1e-12, abs=1e-12)
        assert abs(expected[-1] - begun[key]) > 1e-5


@turns("dtype", [torch.float32, torch.float64])
@turns("way", [{}, {"foreach": True}, {"foreach": False}, {"capturable": True}])
def test_belief_without_momentum_is_sure(way, dtype):
    """The mean is the gradient, so that nothing but ε is in the second moment."""
    params = parameters(dtype)
    optimizer = AdaBelief(params, lr=1e-12, betas=(0.0, 0.5), eps=1e-16, **way)
    run(optimizer, params, 9)
    for state in optimizer.state.values():
        expected = torch.full_like(state["exp_avg_var"], 1e-16 * (2 - 0.5**8))
        torch.testing.assert_close(state["exp_avg_var"], expected, rtol=1e-5, atol=0.0)


def both(function, step, *args):
    """The factor by a number and by a tensor, which have to agree."""
    number = function(step, *args)
    tensor = function(torch.tensor(float(step), dtype=torch.float64), *args)
    assert isinstance(number, float)
    assert tensor.item() == pytest.approx(number, rel=1e-9, abs=1e-12)
    return number


@turns("warmup, step, rate", [(0, 1, 1.0), (0, 10**9, 1.0), (0.5, 1, 1.0), (3, 1, 1 / 3)])
def test_warmups_of_any_length(warmup, step, rate):
    optimizer = AdamWarmup([torch.zeros(1)])
    found = both(lambda t: optimizer.rate({"lr": 1.0, "warmup": warmup}, t), step)
    assert found == pytest.approx(rate)


@given(st.integers(1, 10**5), st.sampled_from([0.0, 0.5, 0.7, 0.9, 0.99, 0.999]))
def test_rectification(step, beta2):
    found = both(rectification, step, beta2)
    rho_inf = 2 / (1 - beta2) - 1
    rho = rho_inf - 2 * step * beta2**step / (1 - beta2**step)
    if rho < 5:
        assert found == 0.0
    else:
        square = (rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)
        assert found == pytest.approx(math.sqrt(square))
        assert 0 < found <= 1
        assert found <= rectification(step + 1, beta2) + 1e-12


# ---------------------------------------------------------------------------- in any order
DECAYS = [WeightDecay(*how).defaults() for how in ((0.0,), (0.1,), (0.1, False), (0.1, True, True))]
WAYS = [{"foreach": None}, {"foreach": True}, {"foreach": False}]
RATES = [{"lr": 0.02}, {"lr": torch.tensor(0.01, dtype=torch.float64)}]
OPTIONS = [*RATES, {"maximize": True}, {"maximize": False}, *DECAYS]


def turned(tensor):
    """The same values in memory in the other order of axes."""
    axes = list(range(tensor.ndim))[::-1]
    return tensor.permute(axes).contiguous().permute(axes)


class Pair:
    """An optimizer, and one that steps copies of its parameters one at a time, without autograd."""

    def __init__(self, name, draw):
        self.draw, self.time = draw, 0
        self.make = CASES[name]
        self.params = parameters()
        self.optimizer = self.make(self.params[:3])
        # What autograd may follow is stepped by plain operations; none of these requires grad.
        self.plain = [param.detach().clone() for param in self.params]
        self.other = self.make(self.plain[:3], differentiable=True)
        self.fused, self.beside = name in ADAM, []

    def groups(self):
        at = self.draw.randrange(len(self.optimizer.param_groups))
        return self.optimizer.param_groups[at], self.other.param_groups[at]

    # ------------------------------------------------------------------ what may happen
    def step(self):
        known = sum(len(group["params"]) for group in self.optimizer.param_groups)
        absent = self.draw.sample(range(5), self.draw.choice([0, 0, 1, 2]))
        for each in (self.params, self.plain):
            give_gradients(each, self.time, absent)
        for param in self.params:
            if param.grad is not None and param.ndim > 1 and self.draw.random() < 0.3:
                param.grad = turned(param.grad)
        kept = [None if p.grad is None else p.grad.clone() for p in self.params]
        before = [(p.detach().clone(), p._version) for p in self.params]
        self.optimizer.step()
        self.other.step()
        self.time += 1
        for i, (param, (value, version)) in enumerate(zip(self.params, before, strict=True)):
            assert (param.grad is None) == (kept[i] is None)
            assert kept[i] is None or torch.equal(param.grad, kept[i])
            assert param._version > version or torch.equal(param, value)
            assert not (kept[i] is None or i >= known) or torch.equal(param, value)

    def change(self):
        option = self.draw.choice(OPTIONS)
        for group in self.groups():
            group.update(option)

    def way(self):
        for group in self.optimizer.param_groups:
            group.update({"capturable": False, **self.draw.choice(WAYS)})
            if self.fused:
                group["fused"] = self.draw.choice([None, False])

    def capture(self):
        group, _ = self.groups()
        group.update({"capturable": not group["capturable"], "foreach": None})

    def maximum(self):
        for group in self.groups():
            group["amsgrad"] = True

    def copy(self):
        copied = self.draw.choice([copy.deepcopy, by_pickle])
        originals, original = self.params, self.optimizer
        self.params, self.optimizer = copied((originals, original))
        give_gradients(originals, 99)
        original.step()  # goes on apart

    def forget(self):
        for each in (self.optimizer, self.other):
            each.state.clear()

    def load(self):
        for each, params in ((self.optimizer, self.params), (self.other, self.plain)):
            for gone in {*each.state} - {*params}:
                del each.state[gone]
        saved = by_file({"params": self.params, "optimizer": self.optimizer.state_dict()})
        self.params, counts = saved["params"], [len(g["params"]) for g in self.other.param_groups]
        splits = iter(self.params)
        self.optimizer = self.make([{"params": [next(splits) for _ in range(n)]} for n in counts])
        self.optimizer.load_state_dict(saved["optimizer"])

    def replace_states(self):
        """As Lightning moves states after a checkpoint was loaded."""
        for param, state in self.optimizer.state.items():
            self.optimizer.state[param] = {
                k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()
            }

    def replace_memory(self):
        """Moves a parameter or its moment to memory of another layout."""
        param = self.draw.choice(self.params)
        moved = [param, *(v for k, v in self.optimizer.state.get(param, {}).items() if k != "step")]
        tensor = self.draw.choice(moved)
        values, wide = tensor.detach().clone(), tensor.detach().new_zeros(*tensor.shape, 2)
        wide[..., 0] = values
        self.beside.append(wide[..., 1])
        tensor.data = self.draw.choice([values, turned(values), wide[..., 0]])

    def exchange(self):
        own, other = self.optimizer.param_groups[0], self.other.param_groups[0]
        at = self.draw.randrange(len(own["params"]))
        self.params[at] = own["params"][at] = nn.Parameter(self.params[at].detach() + 1.0)
        self.plain[at] = other["params"][at] = self.plain[at] + 1.0

    def grow(self):
        if len(self.optimizer.param_groups) == 1:
            decay = WeightDecay(0.05)
            self.optimizer.add_param_group({"params": self.params[3:], "weight_decay": decay})
            self.other.add_param_group({"params": self.plain[3:], "weight_decay": decay})

    def check(self):
        close([p.detach() for p in self.params], self.plain, 1e-10)
        assert not any(each.any() for each in self.beside)  # memory that is nobody's
        for param, plain in zip(self.params, self.plain, strict=True):
            state, other = self.optimizer.state.get(param, {}), self.other.state.get(plain, {})
            assert state.keys() == other.keys()
            mine, its = (
                [torch.as_tensor(each[k]).double() for k in other] for each in (state, other)
            )
            close(mine, its, 1e-10)


TWICE = ["change", "way", "capture", "replace_memory"]  # as often as the others
CALLS = [*2 * TWICE, "maximum", "copy", "load", "forget", "replace_states", "exchange", "grow"]


@pytest.mark.parametrize("name", CASES)
def test_steps_are_the_plain_ones_whatever_happens_between_them(name):
    for seed in range(4):
        draw = random.Random(f"{name}, {seed}")
        pair = Pair(name, draw)
        for call in draw.choices(CALLS, k=25):
            print(call)  # which a failure shows
            getattr(pair, call)()
            pair.step()
            pair.check()
