import math

import pytest
import torch
from forms import FORMS, in_forms
from hypothesis import given, settings
from hypothesis import strategies as st
from rasters import layer, learned, naive, raster, show
from turns import turns

from lightning_accum import BCM, STDP, Cell, Rule, Term
from lightning_accum.engine.state import StateKey

TC = {"tc_post": 7.0, "tc_pre": 13.0}
MODES = ("cumulative", "nearest")
exact = {"rtol": 1e-10, "atol": 1e-10}
quick = settings(derandomize=True, max_examples=12)


def middle(stacked, dim):
    return stacked.median(dim).values


REDUCTIONS = {"mean": torch.mean, "sum": torch.sum, torch.amax: torch.amax, middle: middle}

sizes = st.tuples(st.integers(1, 6), st.integers(1, 3), st.integers(1, 4), st.integers(1, 3))
densities = st.sampled_from([0.0, 0.1, 0.5, 1.0])
signs = st.sampled_from([(0.3, -0.2), (-0.3, 0.2), (0.3, 0.2), (-0.3, -0.2), (0.3, 0.0), (0, -0.2)])


def same(found, expected):
    assert (found is None) == (expected is None)
    if expected is not None:
        torch.testing.assert_close(found, expected, **exact)


@turns("mode", MODES)
@turns("path", FORMS)
@turns("reduction", REDUCTIONS)
@in_forms("path")
@quick
@given(
    size=sizes,
    middle_dims=st.lists(st.integers(1, 2), max_size=2),
    density=st.tuples(densities, densities),
    rates=signs,
    time_dim=st.sampled_from([None, 0]),
    seed=st.integers(0, 999),
)
def test_equals_pair_stdp_spike_by_spike(
    mode, path, reduction, size, middle_dims, density, rates, time_dim, seed
):
    steps, batch, inputs, outputs = size
    pre = raster(steps, batch, *middle_dims, inputs, density=density[0], seed=seed)
    post = raster(steps, batch, *middle_dims, outputs, density=density[1], seed=seed + 1)
    model = layer(inputs, outputs)
    rule = STDP(
        *rates, **TC, trace_mode=mode, batch_reduction=reduction, backend=path,
        time_dim=time_dim, params=("weight", "bias"),
    )  # fmt: skip
    cell = rule.register_cell("cell", model.cell).cell
    show(model, pre, post, time_dim)
    rule()
    how = REDUCTIONS[reduction]
    for name, side in (("weight", pre), ("bias", torch.ones_like(pre[..., :1]))):
        accumulator = getattr(cell.updater, name)
        pos, neg = naive(side, post, *rates, TC["tc_post"], TC["tc_pre"], mode, how)
        squeeze = (lambda x: x) if name == "weight" else (lambda x: None if x is None else x[:, 0])
        same(accumulator.pos, squeeze(pos))
        same(accumulator.neg, squeeze(neg))


@turns("path", FORMS)
@in_forms("path")
def test_terms_of_every_kind_agree_on_every_path(path):
    class Mixed(Rule):
        def terms(self, window, h):
            trace = window.pre.trace(5.0)
            return (
                Term(0.5, window.post, window.pre),
                Term(-0.25, window.post.trace(9.0), trace),
                Term(0.125, window.post.values() * 2, trace),
                Term(2.0, window.post.activity, window.pre.activity),
                Term(-1.5, window.post.trace(3.0, "nearest"), window.pre.values()),
                Term(0.75, window.post.activity, window.pre.trace(4.0, "nearest")),
                Term(0.0, window.post, trace),
            )

    pre, post = raster(6, 2, 3, seed=1), raster(6, 2, 4, seed=2)
    rule = Mixed(backend=path)
    model = layer(3, 4)
    cell = rule.register_cell("cell", model.cell).cell
    for start in (0, 3):
        show(model, pre[start : start + 3], post[start : start + 3])
        rule()

    def traced(x, tc, mode="cumulative"):
        a, out, now = math.exp(-1 / tc), [], torch.zeros_like(x[0])
        for s in x:
            now = torch.where(s > 0, s, a * now) if mode == "nearest" else a * now + s
            out.append(now)
        return torch.stack(out)

    def product(y, x):
        return torch.einsum("tbo,tbi->oi", y, x) / 2

    pos = 2.5 * product(post, pre) + 0.25 * product(post, traced(pre, 5.0))
    pos += 0.75 * product(post, traced(pre, 4.0, "nearest"))
    neg = 0.25 * product(traced(post, 9.0), traced(pre, 5.0))
    neg += 1.5 * product(traced(post, 3.0, "nearest"), pre)
    torch.testing.assert_close(cell.updater.weight.pos, pos, **exact)
    torch.testing.assert_close(cell.updater.weight.neg, neg, **exact)


@quick
@given(size=sizes, seed=st.integers(0, 999))
def test_real_valued_activity(size, seed):
    class Values(STDP):
        spikes = False

    steps, batch, inputs, outputs = size
    values = torch.Generator().manual_seed(seed)
    pre = raster(steps, batch, inputs, seed=seed) * torch.rand(size[:3], generator=values)
    post = raster(steps, batch, outputs, seed=seed + 1) * torch.rand(1, generator=values)
    for mode in MODES:
        pos, neg = naive(pre, post, 0.3, -0.2, 7.0, 13.0, mode, torch.mean)
        found = learned(Values(0.3, -0.2, **TC, trace_mode=mode), pre, post)
        torch.testing.assert_close(found, pos - neg, **exact)


@turns("reduction", ["mean", torch.amax])
def test_mixed_precision_does_not_narrow_the_sums(reduction):
    pre, post = raster(9, 4, 5, seed=5), raster(9, 4, 3, seed=6)
    rule = STDP(0.3, -0.2, batch_reduction=reduction)
    plain = learned(rule, pre, post, torch.float32)
    model = layer(5, 3, torch.float32)
    cell = rule.register_cell("auto", model.cell).cell
    with torch.autocast("cpu", torch.bfloat16):
        show(model, pre, post)
        rule()
    torch.testing.assert_close(cell.updater.weight.update(plain), plain, rtol=0, atol=0)


@turns("path", FORMS)
@in_forms("path")
def test_a_rules_own_tensors_are_only_read(path):
    first, second = raster(5, 2, 3, density=0.9), raster(5, 2, 3, density=0.9, seed=1)
    copies = first.clone(), second.clone()

    class Twice(Rule):
        def terms(self, window, h):
            return [Term(0.5, first, window.pre), Term(2.0, second, window.pre)]

    rule, model = Twice(backend=path, batch_reduction="sum"), layer(4, 3)
    rule.register_cell("cell", model.cell)
    pre = raster(5, 2, 4)
    show(model, pre, raster(5, 2, 3))
    rule()
    expected = torch.einsum("tbo,tbi->oi", 0.5 * first + 2 * second, pre)
    same(model.cell.updater.weight.pos, expected)
    assert torch.equal(first, copies[0])
    assert torch.equal(second, copies[1])


@turns("mode", MODES)
@turns("kind", [torch.float32, torch.bfloat16])
def test_applied_at_every_step_by_one_product(mode, kind):
    pre, post = raster(30, 4, 60, density=0.2), raster(30, 4, 50, density=0.2, seed=1)
    fc, neuron = torch.nn.Linear(60, 50, bias=False), torch.nn.Identity()
    torch.nn.init.zeros_(fc.weight)
    rule = STDP(0.3, -0.2, **TC, trace_mode=mode)
    updater = rule.register_cell("cell", Cell(fc, neuron)).cell.updater
    for x, y in zip(pre.to(kind), post.to(kind), strict=True):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind is torch.bfloat16):
            fc(x), neuron(y)
            rule()
        assert updater.weight.deferred
        rule.update()
    pos, neg = naive(pre, post, 0.3, -0.2, TC["tc_post"], TC["tc_pre"], mode, torch.mean)
    torch.testing.assert_close(fc.weight.detach().double(), pos - neg, rtol=1e-5, atol=1e-5)


def test_rates_of_zero_learn_nothing():
    assert learned(STDP(0.0, 0.0), raster(4, 2, 3), raster(4, 2, 2)) is None


def test_a_single_step_of_spikes_alone_is_as_exact_as_the_parameter():
    class Together(Rule):
        def terms(self, window, h):
            return [Term(0.1, window.post, window.pre)]

    rule, model = Together(batch_reduction="mean"), layer(4, 3)
    rule.register_cell("cell", model.cell)
    pre, post = raster(1, 3, 4), raster(1, 3, 3, seed=1)
    show(model, pre, post)
    rule()
    same(model.cell.updater.weight.pos, 0.1 * (post[0].T @ pre[0]) / 3)


def test_a_trace_passes_on_because_it_is_used_not_because_it_was_made():
    class Half(Rule):
        def terms(self, window, h):
            window.pre.trace(5.0)  # made, and left alone
            return [Term(1.0, window.post, window.pre.trace(9.0))]

    rule, model = Half(), layer(3, 2)
    unit = rule.register_cell("cell", model.cell)
    show(model, raster(4, 1, 3), raster(4, 1, 2))
    rule()
    (key,) = unit.state.carried
    assert (key.scope, key.kind) == ("sample", "pre cumulative trace")
    assert key.setting == pytest.approx(torch.tensor(-1 / 9.0).exp().item())


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda tc: STDP(0.1, -0.1, tc_pre=tc), "pre cumulative trace"),
        (lambda tc: BCM(0.1, tc_threshold=tc), "post average"),
    ],
)
def test_a_time_constant_that_changed_on_resuming_is_noticed(make, kind, recwarn):
    def run(rule, model):
        show(model, raster(4, 1, 3, seed=5), raster(4, 1, 2, seed=6))
        rule()

    first, model = make(20.0), layer(3, 2)
    first.register_cell("cell", model.cell)
    run(first, model)
    for tc in (20.0, 30.0):
        rule, model = make(tc), layer(3, 2)
        rule.register_cell("cell", model.cell)
        rule.load_state_dict(first.state_dict())
        if tc == 20.0:
            run(rule, model)
            assert not recwarn.list
            continue
        with pytest.warns(RuntimeWarning, match=f"cell `cell` has a {kind}.* setting of 0.95"):
            run(rule, model)
        run(rule, model)  # once is enough
    assert not recwarn.list


@turns("text", ["", "pre", "sample:1.0", "other:trace:1.0"])
def test_a_name_of_another_version_is_refused(text):
    with pytest.raises(RuntimeError, match="A name in a cell's state should be"):
        StateKey.parse(text)
