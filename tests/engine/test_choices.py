"""The forms of products that are chosen where one is ahead by far."""

import pytest
import torch
from forced_summation import products
from kernel_helpers import needs_kernel, spikes
from torch import nn

from lightning_accum import STDP, Cell, RuleTrainer
from lightning_accum.engine import summation_forms as forms
from lightning_accum.engine.signal import Signal
from lightning_accum.engine.term_operands import Activity, has_short_traces, short_trace
from lightning_accum.engine.terms import Term
from lightning_accum.functional.traces import reverse_trace, trace
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.events import events_pay


def side(neurons, share, batch=32):
    return Signal(Activity(spikes(40, batch, neurons, density=share, seed=neurons)))


def pairs(pre, post, reward=None):
    y, traced = post, post.trace(20.0)
    if reward is not None:
        y, traced = y * reward, traced * reward
    return [Term(1.0, y, pre.trace(20.0)), Term(-1.0, traced, pre)]


def forms_of(terms):
    return forms.forms_of(products(terms), combine=False)


def unmoved_side(terms, **options):
    return forms.unmoved_side(products(terms), **options)


def rewarded(pre, post):
    good = torch.linspace(0, 1, 4).reshape(1, 4, 1)
    found = [*pairs(pre, post, good), Term(1.0, post * good, pre.trace(20.0, "nearest"))]
    return [*found, *(Term(-each.rate, each.post * (1 - good), each.pre) for each in found)]


@needs_kernel
@pytest.mark.parametrize(("inputs", "outputs", "shares", "batch", "expected"), [
    (784, 100, (0.02, 0.1), 32, "pre"), (784, 100, (0.1, 0.02), 32, "post"),
    (100, 784, (0.02, 0.1), 32, "pre"), (100, 784, (0.1, 0.02), 32, "post"),
    (784, 784, (0.02, 0.1), 1, "pre"), (784, 784, (0.1, 0.02), 1, "post"),
    (400, 100, (0.7, 0.7), 32, "dense"),  # most entries are spikes
    (8, 4, (0.02, 0.02), 1, "dense"),  # so few that a choice takes longer
    (2000, 1400, (0.02, 0.02), 1, "dense"),  # so many weights that a few spikes do not pay
])  # fmt: skip
@pytest.mark.parametrize("counted", [False, True])
def test_the_side_with_fewer_spikes_is_visited(inputs, outputs, shares, batch, expected, counted):
    pre, post = side(inputs, shares[0], batch), side(outputs, shares[1], batch)
    for each in (pre, post) if counted else ():
        each.source.events()
    for terms in (pairs(pre, post), pairs(pre, post, torch.ones(1, batch, 1))):
        ((choice, unmoved, places),) = forms_of(terms)
        assert (choice, places) == (expected, (0, 1))
        assert unmoved == (unmoved_side(terms) if expected == "dense" else expected)


@needs_kernel
@pytest.mark.parametrize("neurons", [380, 390, 400, 410, 420])
def test_what_is_known_of_spikes_changes_no_choice(neurons):
    choices = set()
    for counted in ((), ("pre",), ("post",), ("pre", "post")):
        sides = {"pre": side(400, 0.02), "post": side(neurons, 0.02)}
        for name in counted:
            sides[name].source.events()
        choices.add(forms_of(pairs(**sides))[0].choice)
    assert len(choices) == 1


@needs_kernel
def test_a_window_changes_weights_by_the_same_bits_whatever_came_before_it():
    few, many = spikes(40, 8, 100, density=0.02), spikes(40, 8, 100, density=0.8)

    def changed(*windows):
        trainer, fc = RuleTrainer(STDP(1e-3, -1e-3), time_dim=0), nn.Linear(100, 100, bias=False)
        neuron = nn.Identity()
        trainer.register_cell("c", Cell(fc, neuron))
        for pre, post in windows:
            nn.init.zeros_(fc.weight)
            for (_, name), monitor in trainer.named_monitors:
                monitor({"pre": pre, "post": post}[name])
            trainer(carry=False)
            trainer.update()
        return fc.weight

    for window in ((few, many), (many, few), (many, many)):  # each has another form
        assert torch.equal(changed((many, few), (many, many), (few, many), window), changed(window))


def test_only_the_kernel_visits_spikes(monkeypatch):
    pre, post = side(784, 0.02), side(400, 0.02)
    moved = (Signal(Activity(each.activity.to("meta"))) for each in (pre, post))
    assert forms_of(pairs(*moved))[0].choice == "dense"
    monkeypatch.setattr(library, "library", lambda dtype: None)
    assert forms_of(pairs(pre, post))[0].choice == "dense"


@needs_kernel
def test_terms_are_visited_on_the_side_that_has_spikes():
    pre, post, values = side(300, 0.02, 8), side(300, 0.02, 8), torch.rand(40, 8, 300)
    found = forms_of([Term(0.5, post, values), Term(0.25, values, pre)])
    assert found == [("post", "post", (0,)), ("pre", "pre", (1,))]


@needs_kernel
@pytest.mark.parametrize(
    ("rows", "share", "pays"), [(32, 0.02, False), (512, 0.02, True), (512, 0.6, False)]
)
def test_a_product_of_few_rows_or_of_many_spikes_is_dense(rows, share, pays):
    assert events_pay(spikes(rows, 784, density=share), torch.ones(9, 784)) == pays


@pytest.mark.parametrize("sizes", [(16, 20), (20, 16)])
def test_traces_move_to_the_side_that_is_weighted(sizes):
    pre, post = (side(neurons, 0.2, 4) for neurons in sizes)
    assert unmoved_side(pairs(pre, post)) == ("post" if sizes[1] > sizes[0] else "pre")
    assert unmoved_side(rewarded(pre, post)) == "pre"  # three products instead of six
    flipped = [Term(each.rate, each.pre, each.post) for each in rewarded(pre, post)]
    assert unmoved_side(flipped) == "post"
    assert unmoved_side(rewarded(pre, post), combine=True) == "pre"


@pytest.mark.parametrize("decay", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1, 2), (20, 4, 3), (20, 2, 0), (128, 2)])
def test_traces_of_few_spikes_equal_the_plain_form(shape, dtype, decay):
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3
    eps = 20 * torch.finfo(dtype).eps
    assert (has_short_traces(x), has_short_traces(x.to(dtype))) == (True, False)
    for reverse, plain in enumerate((trace, reverse_trace)):
        used = torch.full(shape, torch.nan, dtype=dtype)
        assert short_trace(x, decay, dtype, used, bool(reverse)) is used
        assert torch.equal(short_trace(x, decay, dtype, None, bool(reverse)), used)
        torch.testing.assert_close(used, plain(x.to(dtype), decay), rtol=eps, atol=0)
