"""What connections there are beside those of every rule, and what is turned away."""

from __future__ import annotations

import math

import pytest
import torch
from connections import OneToOne
from rasters import Fed, naive, raster
from references import PAIR
from torch import Tensor, nn

from lightning_accum import STDP, Cell, get_updater


class Squared(OneToOne):
    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain**2


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
    expected = sum(naive(pre, post, *PAIR.values(), "cumulative", torch.mean)[0] for post in posts)
    assert torch.allclose(get_updater(fc).weight.pos, expected, rtol=1e-10)


def test_what_is_not_linear_is_turned_away():
    module, neuron = Squared(), Fed()
    rule = STDP(**PAIR, params=("gain",))
    rule.register_cell("enc", Cell(module, neuron))
    neuron.food.append(torch.ones(1, 4))
    neuron(module(torch.ones(1, 4)))
    with pytest.raises(
        ValueError, match=r"`gain` .*, a Squared, .* on the parameter's value: train"
    ):
        rule()


class Dropped(nn.Linear):
    """Leaves out some of its input, by chance."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(torch.nn.functional.dropout(x, 0.5), self.weight)


def test_dropout_in_a_connection_is_named():
    module, neuron = Dropped(40, 3, bias=False), Fed()
    rule = STDP(**PAIR)
    rule.register_cell("enc", Cell(module, neuron))
    neuron.food.append(torch.ones(1, 3))
    neuron(module(torch.ones(1, 40)))
    with pytest.raises(ValueError, match=r"two calls with .*random, such as dropout"):
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


class Casting(nn.Module):
    """A connection that names a dtype itself."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return x.float() @ self.weight.T


class Binary(Casting):
    """Each weight counts as 0 or 1, and the derivative passes straight through."""

    def forward(self, x: Tensor) -> Tensor:
        binary = (self.weight > 0.5).float()
        return x.float() @ (self.weight + (binary - self.weight).detach()).T


class Remembering(Casting):
    """Keeps its output, with the graph in which it was computed."""

    def forward(self, x: Tensor) -> Tensor:
        self.seen = [super().forward(x)]
        return self.seen[0]


class Bent(Casting):
    def forward(self, x: Tensor) -> Tensor:
        return x.float() @ self.weight.square().T


class Constant(Casting):
    def forward(self, x: Tensor) -> Tensor:
        return x @ (self.weight > 0.5).float().T


class Choosy(Casting):
    """Takes booleans only."""

    def forward(self, x: Tensor) -> Tensor:
        return (x & torch.ones_like(x)).float() @ self.weight.T


def evaluate(module: nn.Module) -> None:
    """Evaluates a rule that has seen one step of spikes, kept as booleans."""
    neuron = Fed()
    rule = STDP(1.0, -1.0)
    rule.register_cell("enc", Cell(module, neuron))
    neuron.food.append(torch.tensor([[True, False, True], [False, True, True]]))
    spikes = torch.tensor([[True, True, False, False], [False, True, False, True]])
    neuron(module(spikes.float() if isinstance(module, (nn.Linear, Constant)) else spikes))
    rule()


@pytest.mark.parametrize("kind", [Casting, Binary, Remembering])
def test_a_connection_may_name_its_dtype(kind: type[nn.Module]) -> None:
    module, linear = kind(), nn.Linear(4, 3, bias=False)
    for each in (module, linear):
        evaluate(each)
    own, plain = (get_updater(each).weight for each in (module, linear))
    torch.testing.assert_close(own.pos, plain.pos)
    torch.testing.assert_close(own.neg, plain.neg)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Bent, "`weight` of cell `enc` should enter its"),
        (Constant, "that it has none"),
    ],
)
def test_what_is_not_linear_is_refused_in_its_own_dtype(
    kind: type[nn.Module], message: str
) -> None:
    module = kind()
    with pytest.raises(ValueError, match=message):
        evaluate(module)
    assert get_updater(module).weight.empty


def test_an_error_of_a_connection_that_the_rule_calls_is_its_cause() -> None:
    module = Choosy()
    message = "calls it to see how it uses the parameter. Found that it then raises a NotI"
    with pytest.raises(ValueError, match=message) as caught:
        evaluate(module)
    assert isinstance(caught.value.__cause__, NotImplementedError)
    assert get_updater(module).weight.empty
