"""What connections there are beside those of every rule, and what is refused."""

import copy
import itertools
import math

import pytest
import torch
from clamped_layers import Fed, learned, raster
from connections import KINDS, Own
from references import PAIR, RULES
from subtests import turns
from torch import nn

from lightning_accum import STDP, Cell, Rule, RuleTrainer, Term, get_updater


def test_an_embedding_learns_at_its_indices():
    table, neuron = nn.Embedding(5, 3).double(), Fed()
    rule = RuleTrainer(STDP(1.0, 0.0, tc_pre=10.0))
    rule.register_cell("words", Cell(table, neuron))
    for word, spikes in ((2, [1.0, 0.0, 0.0]), (4, [0.0, 1.0, 0.0])):
        neuron.food.append(torch.tensor([spikes]))
        neuron(table(torch.tensor([word])))
    rule()
    expected = torch.zeros(5, 3, dtype=torch.float64)
    expected[2] = torch.tensor([1.0, math.exp(-0.1), 0.0])
    expected[4, 1] = 1.0
    assert torch.allclose(get_updater(table).weight.pos, expected)


@turns("name, kind", zip(RULES, itertools.cycle([
    "linear", "sparse", "conv1d", "conv2d", "conv2d, same", "conv3d", "conv transposed"
]), strict=False))  # fmt: skip
def test_one_sample_needs_no_batch(name, kind):
    case, (make, shape, _), found = RULES[name], KINDS[kind], []
    torch.manual_seed(0)
    first, pre = make(), raster(5, 1, *shape).float()
    post = raster(5, *first(pre[0]).shape[1:], seed=1).float()
    for batch in (True, False):
        connection, neuron = copy.deepcopy(first), Fed()
        rule = case.make()
        rule.register_cell("cell", Cell(connection, neuron))
        for _ in range(2):
            neuron.food += [y[None] if batch else y for y in post]
            for x in pre if batch else pre[:, 0]:
                neuron(connection(x))
            rule(**({"reward": torch.ones(1)} if case.rewarded else {}))
            rule.update()
        found.append(connection.weight.detach())
    assert not torch.equal(found[0], first.weight) or name == "WeightDependentSTDP"
    torch.testing.assert_close(*found, rtol=0, atol=0)


class Dropped(nn.Linear):
    """Leaves out some of its input, by chance."""

    def forward(self, x):
        return torch.nn.functional.linear(torch.nn.functional.dropout(x, 0.5), self.weight)


def test_evaluating_one_rule_shows_nothing_to_another():
    conv, neuron = nn.Conv2d(1, 2, 3, padding="same"), Fed()
    rules = [RuleTrainer(STDP(**PAIR), params=("weight", "bias")) for _ in range(2)]
    units = [rule.register_cell("enc", Cell(conv, neuron)) for rule in rules]
    neuron.food.append(torch.ones(1, 2, 3, 3))
    neuron(conv(torch.ones(1, 1, 3, 3)))
    rules[0]()
    assert [unit.monitors["pre"].reducer.length for unit in units] == [0, 1]
    rules[1]()


def binary(w):
    """Each weight counts as 0 or 1, and the derivative passes straight through."""
    return w + ((w > 0.5).float() - w).detach()


class Remembering(Own):
    """Keeps its output, with the graph in which it was computed."""

    def forward(self, x):
        self.seen = [super().forward(x)]
        return self.seen[0]


def choosy():
    """Takes booleans only."""
    return Own(lambda x, w: (x & torch.ones_like(x)).float() @ w.T, 3, 4)


SPIKES = torch.tensor([[True, True, False, False], [False, True, False, True]])
FIRED = torch.tensor([[True, False, True], [False, True, True]])


def evaluate(module, pre=SPIKES, post=FIRED):
    """Evaluates a rule on the first parameter, after one step."""
    neuron, (name, _) = Fed(), next(module.named_parameters())
    rule = RuleTrainer(STDP(1.0, -1.0), params=(name,))
    rule.register_cell("enc", Cell(module, neuron))
    neuron.food.append(post)
    neuron(module(pre))
    rule()


@turns("make, of", [(Own, lambda w: w), (Own, binary), (Remembering, lambda w: w)])
def test_a_connection_may_name_its_dtype(make, of):
    module, linear = make(lambda x, w: x.float() @ of(w).T, 3, 4), nn.Linear(4, 3, bias=False)
    evaluate(module), evaluate(linear, SPIKES.float())
    own, plain = (get_updater(each).weight for each in (module, linear))
    torch.testing.assert_close(own.pos, plain.pos)
    torch.testing.assert_close(own.neg, plain.neg)


@turns("make, pre, post, words", [
    (lambda: Own(lambda x, w: x * w**2, 4), torch.ones(1, 4), torch.ones(1, 4),
     r"`weight` .*, a Own, .* on the parameter's value: train"),
    (lambda: Dropped(40, 3, bias=False), torch.ones(1, 40), torch.ones(1, 3),
     r"two calls with .*random, such as dropout"),
    (lambda: nn.Conv2d(1, 2, 3), torch.ones(1, 1, 4, 4), torch.ones(1, 2, 4, 4),
     r"output, \[B, 2, 2, 2\]. Found \[B, 2, 4, 4\]"),
    (lambda: Dropped(4, 4), torch.ones(4), torch.ones(4),
     r"then raises a RuntimeError.*, and a batch, as `x\[None\]`"),
    (lambda: Dropped(8, 3), torch.ones(8), torch.ones(3), r"give both a batch, as `x\[None\]`"),
    (lambda: Own(lambda x, w: x.float() @ w.square().T, 3, 4), SPIKES, FIRED,
     "`weight` of cell `enc` should enter its"),
    (lambda: Own(lambda x, w: x @ (w > 0.5).float().T, 3, 4), SPIKES.float(), FIRED,
     "that it has none"),
    (choosy, SPIKES, FIRED, "to see how it uses the parameter. Found that it then raises a NotI"),
])  # fmt: skip
def test_what_is_refused(make, pre, post, words):
    module = make()
    with pytest.raises(ValueError, match=words) as caught:
        evaluate(module, pre, post)
    if make is choosy:
        assert isinstance(caught.value.__cause__, NotImplementedError)
    (updated,) = get_updater(module).names
    assert getattr(get_updater(module), updated).empty


def test_a_trace_of_a_trace_is_refused():
    class Twice(Rule):
        def terms(self, window):
            return [Term(1.0, window.post, window.pre.trace(5.0).trace(5.0))]

    with pytest.raises(ValueError, match="Found one of a trace"):
        learned(RuleTrainer(Twice()), raster(4, 2, 3), raster(4, 2, 2))
