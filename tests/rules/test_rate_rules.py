"""The rules on rates: what they converge to, and what a neuron keeps from sample to sample."""

import torch
from clamped_layers import learned
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import lightning_accum as la
from lightning_accum import Homeostasis, RuleTrainer, Sanger, WTAHebb, get_updater
from lightning_accum.cells import Serial


def linear(inputs, outputs):
    return Serial(nn.Linear(inputs, outputs, bias=False, dtype=torch.float64), nn.Identity())


@settings(max_examples=20, derandomize=True)
@given(
    steps=st.integers(1, 4), batch=st.integers(1, 3),
    tokens=st.lists(st.integers(1, 2), max_size=1), reduce=st.sampled_from(["mean", "sum", "amax"]),
    seed=st.integers(0, 99),
)  # fmt: skip
def test_sanger_against_a_loop(steps, batch, tokens, reduce, seed):
    torch.manual_seed(seed)
    model, rule = linear(3, 4), RuleTrainer(Sanger(0.3), batch_reduction=reduce)
    rule.register_cell("cell", model.cell)
    pre = torch.randn(steps, batch, *tokens, 3, dtype=torch.float64)
    weight = model.connection.weight.detach()
    parts = torch.zeros(2, batch, 4, 3, dtype=torch.float64)
    for x in pre:
        y = model(x).detach()
        for b in range(batch):
            for out, given_ in zip(y[b].reshape(-1, 4), x[b].reshape(-1, 3), strict=True):
                for i in range(4):
                    parts[0, b, i] += 0.3 * out[i] * given_
                    for k in range(i + 1):
                        parts[1, b, i] += 0.3 * out[i] * out[k] * weight[k]
    rule()
    pending = get_updater(model.connection).weight
    for found, expected in zip((pending.pos, pending.neg), parts, strict=True):
        expected = getattr(torch, reduce)(expected, 0)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


class Sometimes(la.Rule):
    """Looks at the average where it is told to."""

    spikes = False

    def terms(self, window):
        post = window.post.values()
        if window.inputs["look"]:
            post = window.post.average(5.0).expand_as(post)
        return [la.Term(1.0, post, window.one)]


def test_an_average_is_kept_where_a_window_does_not_ask_for_it():
    found = []
    for looks in ((True, True), (True, False, True)):
        model, rule = linear(1, 1), RuleTrainer(Sometimes())
        nn.init.ones_(model.connection.weight)
        rule.register_cell("cell", model.cell)
        values = (1.0, 9.0, 5.0) if len(looks) == 3 else (1.0, 5.0)
        for value, look in zip(values, looks, strict=True):
            get_updater(model.connection).clear()
            model(torch.full((1, 1), value).double())
            rule(look=look)
        found.append(get_updater(model.connection).weight.pos)
    assert torch.equal(*found)
    assert 1 < found[0] < 5


def test_homeostasis_takes_whatever_comes_in():
    pre, post = torch.tensor([[[0.3, -2.0]]]), torch.tensor([[[1.0, 0.0, 1.0]]])
    change = learned(RuleTrainer(Homeostasis(0.1, 500.0)), pre.double(), post.double())
    assert torch.allclose(change, torch.tensor([[-0.05], [0.05], [-0.05]]).double().expand(3, 2))


def test_of_equals_the_first_wins():
    change = learned(RuleTrainer(WTAHebb(1.0)), torch.full((1, 1, 2), 3.0), torch.ones(1, 1, 30))
    assert torch.equal(change.any(1).nonzero().flatten(), torch.tensor([0]))


def test_competition_shows_nan_to_the_policy():
    for winners in (1, 2):
        model, rule = linear(3, 3).float(), RuleTrainer(WTAHebb(0.1, winners))
        unit = rule.register_cell("enc", model.cell)
        unit.monitors["pre"](torch.ones(2, 3))
        unit.monitors["post"](torch.tensor([[1.0, 2.0, 3.0], [3.0, torch.nan, 2.0]]))
        before = model.connection.weight.detach().clone()
        rule()
        updater = get_updater(model.connection)
        updater.nonfinite = "skip"
        rule.update()
        assert updater.skipped == {"weight": 1}
        assert torch.equal(model.connection.weight, before)
