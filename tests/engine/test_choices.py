"""The cost model's choices where the fastest path is ahead by far, and what it charges for."""

import pytest
import torch
from compiled import needs_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from lightning_accum.engine import costs
from lightning_accum.engine.costs import Forms, possible, unmoved_side
from lightning_accum.engine.fold import add_products
from lightning_accum.engine.signal import Activity, Signal
from lightning_accum.engine.terms import Term
from lightning_accum.engine.vjp import Outer
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse.event_sums import events_pay
from lightning_accum.updates.accumulator import Accumulator


def side(neurons, share, batch=32):
    generator = torch.Generator().manual_seed(neurons)
    return Signal(Activity(torch.rand(40, batch, neurons, generator=generator) < share))


def cheapest(products):
    ((choice, *_),) = Forms().of(products, combine=False)
    return choice


def charges(products, combine=False):
    return {k: each.of(products[0]) for k, each in possible(products, combine).items()}


def pairs(pre, post, reward=None):
    y, traced = post, post.trace(20.0)
    if reward is not None:
        y, traced = y * reward, traced * reward
    return [Term(1.0, y, pre.trace(20.0)), Term(-1.0, traced, pre)]


@needs_kernel
def test_the_cheapest():
    wide = side(784, 0.02)
    for neurons in (1600, 400, 100):
        assert cheapest(pairs(wide, side(neurons, 0.018))) == "pre"
        assert cheapest(pairs(wide, side(neurons, 0.018), torch.ones(1, 32, 1))) == "pre"
    assert cheapest(nearest(wide, side(10, 0.02))) == "post"  # a thin layer
    # a short window of one sample writes a large matrix once
    assert cheapest(pairs(side(784, 0.02, 1), side(1600, 0.02, 1))) == "dense"
    # terms are visited on the side that has spikes
    pre, post, values = side(300, 0.02, 8), side(300, 0.02, 8), torch.rand(40, 8, 300)
    forms = Forms().of([Term(0.5, post, values), Term(0.25, values, pre)], combine=False)
    assert forms == [("post", "post", (0,)), ("pre", "pre", (1,))]


def test_only_the_kernel_visits_spikes(monkeypatch):
    monkeypatch.setattr(library, "library", lambda dtype: None)
    assert charges(pairs(side(784, 0.02), side(400, 0.018))).keys() == {"dense"}


@needs_kernel
def test_spikes_are_not_counted_after_a_move_to_another_device():
    forms = Forms()
    pre, post = side(784, 0.02), side(400, 0.018)
    assert forms.of(pairs(pre, post), combine=False)[0].choice != "dense"
    moved = (Signal(Activity(each.activity.to("meta"))) for each in (pre, post))
    assert {form.choice for form in forms.of(pairs(*moved), combine=False)} == {"dense"}


@pytest.mark.parametrize(("rows", "pays"), [(1, False), (32, False), (64, False), (512, True)])
def test_a_matrix_is_not_transposed_for_few_rows(rows, pays):
    raster = torch.rand(rows, 784, generator=torch.Generator().manual_seed(0)) < 0.02
    assert events_pay(raster, 400) == pays


class Counts(TorchDispatchMode):
    """Counts the multiply-adds of matrix products, and the elements that events add."""

    def __init__(self):
        super().__init__()
        self.multiply = self.add = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.addmm_.default:
            self.multiply += args[1].numel() * args[2].shape[1]
        elif func.overloadpacket is torch.ops.aten._embedding_bag_forward_only:
            self.add += args[1].numel() * args[0].shape[1]
        return func(*args, **(kwargs or {}))


def only(monkeypatch, **unit):
    """Charges nothing but one constant."""
    free = costs.Costs(*[0.0] * 9, write=(0.0, 0.0))._replace(**unit)
    monkeypatch.setattr(costs, "KERNEL", free)


def triplets(pre, post):
    before = pre.trace(100.0).before()
    fast = post.trace(30.0)
    return [*pairs(pre, post), Term(-2.0, fast, pre), Term(-3.0, fast, pre * before)]


def nearest(pre, post):
    return [
        Term(1.0, post, pre.trace(20.0, "nearest")),
        Term(-1.0, post.trace(20.0, "nearest"), pre),
    ]


def rewarded(pre, post):
    good = torch.linspace(0, 1, 4).reshape(1, 4, 1)
    found = [*pairs(pre, post, good), Term(1.0, post * good, pre.trace(20.0, "nearest"))]
    return [*found, *(Term(-each.rate, each.post * (1 - good), each.pre) for each in found)]


FORMS = [pairs, triplets, nearest, rewarded]


@needs_kernel
@pytest.mark.parametrize("sizes", [(24, 10), (10, 24)])
@pytest.mark.parametrize("combine", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_the_charges_count_what_is_multiplied_and_added(monkeypatch, form, combine, sizes):
    # torch computes what the kernel would, and can be seen to do so
    monkeypatch.setattr("lightning_accum.sparse.kernel_library.kernel_for", lambda dtype: None)
    pre, post = (side(neurons, 0.2, 4) for neurons in sizes)
    matrix = Outer(torch.nn.Module(), "", "")
    for path in ("dense", "pre", "post"):
        terms, sums, seen = form(pre, post), Accumulator(), Counts()
        moved = unmoved_side(terms, combine) if path == "dense" else path
        with seen, torch.no_grad():
            add_products(sums, terms, 1.0, moved, matrix, path != "dense", combine)
        for own in (pre, post):
            own.source.events()  # so that the model knows how many there are
        for name, found in {"multiply": seen.multiply, "add": seen.add}.items():
            only(monkeypatch, **{name: 1.0})
            rows = pre.shape[:2].numel()
            assert charges(terms, combine)[path] * rows == pytest.approx(found), (path, name)


@pytest.mark.parametrize("form", FORMS)
def test_the_difference_of_both_parts_is_charged_for_one_product(form):
    pre, post = side(60, 0.1, 4), side(20, 0.1, 4)
    terms = form(pre, post)
    apart, net = charges(terms), charges(terms, combine=True)
    assert all(net[path] <= apart[path] for path in net)
    if form is pairs:
        multiply = costs.KERNEL.multiply
        assert apart["dense"] - net["dense"] == pytest.approx(60 * 20 * multiply)


@needs_kernel
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("combine", [False, True])
def test_more_of_anything_is_charged_more(form, combine):
    def whole(inputs, neurons, batch, share):
        pre, post = side(inputs, share, batch), side(neurons, share, batch)
        if form is rewarded and batch != 4:
            pytest.skip("has rewards of four samples")
        return {k: v * 40 * batch for k, v in charges(form(pre, post), combine).items()}

    least = whole(64, 32, 4, 0.05)
    for more in [(128, 32, 4, 0.05), (64, 60, 4, 0.05), (64, 32, 4, 0.3)]:
        found = whole(*more)
        assert all(found[path] >= least[path] for path in ("dense", "pre", "post")), more
    assert whole(64, 32, 4, 0.3)["pre"] > least["pre"]
    terms = form(side(64, 0.05, 4), side(32, 0.05, 4))
    fewer, more = charges(terms[:1], combine), charges(terms, combine)
    assert fewer["dense"] <= more["dense"]


@pytest.mark.parametrize("sizes", [(16, 20), (20, 16)])
def test_traces_move_to_the_side_that_is_weighted(sizes):
    pre, post = (side(neurons, 0.2, 4) for neurons in sizes)
    assert unmoved_side(pairs(pre, post)) == ("post" if sizes[1] > sizes[0] else "pre")
    assert unmoved_side(rewarded(pre, post)) == "pre"  # three products instead of six
    flipped = [Term(each.rate, each.pre, each.post) for each in rewarded(pre, post)]
    assert unmoved_side(flipped) == "post"
