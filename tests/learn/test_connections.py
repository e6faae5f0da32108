"""Every kind of connection against a loop over steps and samples, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rasters import Fed, raster
from torch import Tensor, nn
from torch.nn.utils import prune

from lightning_accum import STDP, Cell, Rule, TripletSTDP, get_updater


class OneToOne(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(4))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain


class Transposed(nn.Module):
    """A square weight that is used the other way round."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


class Squared(OneToOne):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain**2


def masked() -> nn.Module:
    return prune.custom_from_mask(nn.Linear(4, 3), "weight", raster(3, 4, seed=9))


# kind: module, shape of its input, parameters
KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[str, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (4,), ("weight", "bias")),
    "linear, tokens": (lambda: nn.Linear(4, 3), (2, 4), ("weight", "bias")),
    "conv1d": (lambda: nn.Conv1d(2, 3, 3, stride=2, padding=1), (2, 7), ("weight", "bias")),
    "conv2d": (
        lambda: nn.Conv2d(2, 4, 2, padding=1, dilation=2, groups=2), (2, 5, 4), ("weight", "bias")
    ),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), (1, 3, 2, 3), ("weight", "bias")),
    "depthwise": (lambda: nn.Conv2d(3, 3, 2, groups=3), (3, 3, 3), ("weight",)),
    "conv2d, same": (lambda: nn.Conv2d(1, 2, 3, padding="same"), (1, 4, 4), ("weight", "bias")),
    "conv2d, circular": (
        lambda: nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), (1, 4, 4), ("weight",)
    ),
    "conv transposed": (lambda: nn.ConvTranspose2d(2, 3, 2, 2), (2, 2, 3), ("weight", "bias")),
    "masked": (masked, (4,), ("weight_orig",)),
    "one to one": (OneToOne, (4,), ("gain",)),
    "the other way round": (Transposed, (4,), ("weight",)),
}  # fmt: skip

PAIR = {"lr_post": 0.3, "lr_pre": -0.2, "tc_post": 8.0, "tc_pre": 12.0}
TRIPLET = {
    "lr_post_pair": 0.3, "lr_post_triplet": 0.4, "lr_pre_pair": -0.2, "lr_pre_triplet": -0.1,
    "tc_post_fast": 8.0, "tc_post_slow": 20.0, "tc_pre_fast": 12.0, "tc_pre_slow": 30.0,
}  # fmt: skip
RULES: dict[str, Callable[..., Rule]] = {
    "pair": lambda **o: STDP(**PAIR, **o),
    "triplet": lambda **o: TripletSTDP(**TRIPLET, **o),
}


def follow(before: Tensor, spikes: Tensor, tc: float, mode: str) -> Tensor:
    left = math.exp(-1 / tc) * before
    return torch.where(spikes != 0, spikes, left) if mode == "nearest" else left + spikes


def naive(
    module: nn.Module, name: str, pre: Tensor, post: Tensor, rule: str, mode: str
) -> tuple[Tensor, Tensor]:
    """The two parts of every sample, ``[B, ...]``, one step and one sample after the other."""
    param = getattr(module, name).detach().clone().requires_grad_()

    def product(y: Tensor, x: Tensor) -> Tensor:
        # the derivative at what goes in; a bias sees an input that is one, times its trace
        out = torch.func.functional_call(module, {name: param}, (x.unsqueeze(0),))
        return torch.autograd.grad(out, param, y.unsqueeze(0))[0]

    h = PAIR if rule == "pair" else TRIPLET
    slow = rule == "triplet"
    parts: tuple[list[Tensor], list[Tensor]] = ([], [])
    for b in range(pre.shape[1]):
        pos, neg = torch.zeros_like(param), torch.zeros_like(param)
        is_bias = name == "bias"
        one = torch.ones(1, dtype=pre.dtype)
        start = one if is_bias else pre[0, b]
        r1, r2 = torch.zeros_like(start), torch.zeros_like(start)
        o1, o2 = torch.zeros_like(post[0, b]), torch.zeros_like(post[0, b])
        for t in range(pre.shape[0]):
            x, y = one if is_bias else pre[t, b], post[t, b]
            gate_r = math.exp(-1 / h["tc_pre_slow"]) * r2 if slow else 0.0
            gate_o = math.exp(-1 / h["tc_post_slow"]) * o2 if slow else 0.0
            r1 = follow(r1, x, h["tc_pre_fast" if slow else "tc_pre"], mode)
            o1 = follow(o1, y, h["tc_post_fast" if slow else "tc_post"], mode)
            if slow:
                r2 = follow(r2, x, h["tc_pre_slow"], mode)
                o2 = follow(o2, y, h["tc_post_slow"], mode)
                up = y * (h["lr_post_pair"] + h["lr_post_triplet"] * gate_o)
                down = x * (-h["lr_pre_pair"] - h["lr_pre_triplet"] * gate_r)
            else:
                up, down = y * h["lr_post"], x * -h["lr_pre"]
            if is_bias:
                pos += product(up * r1, pre[t, b])
                neg += product(o1 * down, pre[t, b])
            else:
                pos += product(up, r1)
                neg += product(o1, down)
        parts[0].append(pos)
        parts[1].append(neg)
    return torch.stack(parts[0]).detach(), torch.stack(parts[1]).detach()


def run(rule: Rule, module: nn.Module, pre: Tensor, post: Tensor, cuts: int) -> None:
    neuron = Fed()
    rule.register_cell("cell", Cell(module, neuron))
    for xs, ys in zip(pre.chunk(cuts), post.chunk(cuts), strict=True):
        for x, y in zip(xs, ys, strict=True):
            neuron.food.append(y)
            neuron(module(x))
        rule()


@pytest.mark.parametrize("mode", ["cumulative", "nearest"])
@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    steps=st.integers(1, 5),
    batch=st.integers(1, 3),
    whole=st.booleans(),
    reduce=st.sampled_from(["mean", "sum", "amax"]),
    seed=st.integers(0, 99),
)
def test_against_a_loop(
    kind: str, name: str, mode: str, steps: int, batch: int, whole: bool, reduce: str, seed: int
) -> None:
    make, shape, params = KINDS[kind]
    torch.manual_seed(seed)
    module = make().double()
    pre = raster(steps, batch, *shape, seed=seed)
    post = raster(steps, batch, *module(pre[0]).shape[1:], seed=seed + 1)
    whole = whole or reduce == "amax"  # a maximum depends on how a window is cut
    rule = RULES[name](params=params, trace_mode=mode, batch_reduction=reduce)
    run(rule, module, pre, post, 1 if whole else steps)
    for param in params:
        part = getattr(get_updater(module), param)
        for found, samples in zip(
            (part.pos, part.neg), naive(module, param, pre, post, name, mode), strict=True
        ):
            expected = getattr(torch, reduce)(samples, 0)
            assert torch.allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_an_embedding_learns_at_its_indices():
    table, neuron = nn.Embedding(5, 3).double(), Fed()
    rule = STDP(1.0, 0.0, tc_pre=10.0)
    rule.register_cell("words", Cell(table, neuron))
    for word, spikes in ((2, [1.0, 0.0, 0.0]), (4, [0.0, 1.0, 0.0])):
        neuron.food.append(torch.tensor([spikes]))
        neuron(table(torch.tensor([word])))
    rule()
    expected = torch.zeros(5, 3, dtype=torch.float64)
    expected[2] = torch.tensor([1.0, math.exp(-0.1), 0.0])
    expected[4, 1] = 1.0
    assert torch.allclose(get_updater(table).weight.pos, expected)


def test_a_shared_connection_adds_up_each_cell_once():
    fc, neurons = nn.Linear(4, 3).double(), (Fed(), Fed())
    pre, posts = raster(3, 2, 4), (raster(3, 2, 3, seed=1), raster(3, 2, 3, seed=2))
    rule = STDP(**PAIR)
    for i, neuron in enumerate(neurons):
        rule.register_cell(str(i), Cell(fc, neuron))
    for t in range(3):
        out = fc(pre[t])
        for neuron, post in zip(neurons, posts, strict=True):
            neuron.food.append(post[t])
            neuron(out)
    rule()
    expected = sum(
        naive(fc, "weight", pre, post, "pair", "cumulative")[0].mean(0) for post in posts
    )
    assert torch.allclose(get_updater(fc).weight.pos, expected, rtol=1e-10)


def test_what_is_not_linear_is_turned_away():
    module, neuron = Squared(), Fed()
    rule = STDP(**PAIR, params=("gain",))
    rule.register_cell("enc", Cell(module, neuron))
    neuron.food.append(torch.ones(1, 4))
    neuron(module(torch.ones(1, 4)))
    with pytest.raises(ValueError, match="`gain` of cell `enc` should enter its module, a Squared"):
        rule()


def test_the_output_has_to_have_the_connections_shape():
    conv, neuron = nn.Conv2d(1, 2, 3), Fed()
    rule = STDP(**PAIR)
    rule.register_cell("enc", Cell(conv, neuron))
    neuron.food.append(torch.ones(1, 2, 4, 4))
    neuron(conv(torch.ones(1, 1, 4, 4)))
    with pytest.raises(ValueError, match=r"output, \[B, 2, 2, 2\]. Found \[B, 2, 4, 4\]"):
        rule()


def test_evaluating_one_rule_shows_nothing_to_another():
    conv, neuron = nn.Conv2d(1, 2, 3, padding="same"), Fed()
    rules = [STDP(**PAIR, params=("weight", "bias")) for _ in range(2)]
    units = [rule.register_cell("enc", Cell(conv, neuron)) for rule in rules]
    neuron.food.append(torch.ones(1, 2, 3, 3))
    neuron(conv(torch.ones(1, 1, 3, 3)))
    rules[0]()
    assert [unit.monitors["pre"].reducer.length for unit in units] == [0, 1]
    rules[1]()
