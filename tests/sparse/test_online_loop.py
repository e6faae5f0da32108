"""The loop that learns by a list of terms, and a plain one that reads like its equation."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_helpers import needs_kernel, numbers, spikes, threads

from lightning_accum.functional.bounds import Room
from lightning_accum.sparse import kernel_library as library
from lightning_accum.sparse import online_loop
from lightning_accum.sparse.online_loop import LoopTerm, LoopTerms, LoopTrace, OnlineState
from lightning_accum.sparse.recurrent import pairs_of

pytestmark = needs_kernel
NEURONS = online_loop.SpikingNeurons(0.9, 0.01, 1.03, 0.95, 0.07, 2)
TRACES = st.builds(
    LoopTrace, st.sampled_from([0.0, 0.4, 0.9, 1.0]), st.booleans(), st.sampled_from([0, 0, 1])
)


@st.composite
def rules(draw, signs=(1, -1)):
    """Lists of terms, of whatever traces."""
    sides = [tuple(draw(st.lists(TRACES, max_size=3))) for _ in range(2)]
    terms = []
    for on_post in (True, False):
        others, owns = sides if on_post else sides[::-1]
        for other in range(len(others)):
            rate = draw(st.sampled_from(signs)) * draw(st.sampled_from([0.0, 0.0071, 0.0123]))
            own = draw(st.sampled_from([None, *range(len(owns))]))
            terms.append(LoopTerm(rate, on_post, draw(st.sampled_from([other, 0])), own))
    rooms = st.sampled_from([None, Room(1.3), Room(-0.9, 2.0, 0.7, 1.0), Room(0.2, power=0.0)])
    options = draw(st.sampled_from([{}, {"reward": 1.0}, {"reward": 1.0, "tc_eligibility": 3.0}]))
    room = {"rise": draw(rooms), "fall": draw(rooms)} if draw(st.booleans()) else {}
    shuffled = tuple(draw(st.permutations(terms)))
    return LoopTerms(*sides, shuffled, **options, **room, eligibility=0.7)


def start(rule, batch, inputs, size, dtype=torch.float64):
    """A state in which nothing is zero."""
    traces = (
        [numbers(batch, width, seed=i, dtype=dtype).abs() for i in range(len(side))]
        for side, width in ((rule.pre, inputs), (rule.post, size))
    )
    waits = rule.tc_eligibility is not None
    parts = [numbers(batch, size, inputs, seed=s, dtype=dtype).abs() / 50 for s in range(2 * waits)]
    v, hold = numbers(batch, size, dtype=dtype) / 3, torch.zeros(batch, size, dtype=dtype)
    return OnlineState(v, hold, numbers(size, dtype=dtype).abs() / 9, *traces, parts)


def plain(raster, weight, bias, rule, state, limits, reward):
    """Simulates and learns step by step, each sample and term by itself."""
    weight, (v, hold, theta, pre, post, eligible) = weight.clone(), state
    decay, drive, threshold, decay_theta, theta_plus, period, *_ = NEURONS
    pos, neg = eligible or 2 * [torch.zeros(len(v), *weight.shape, dtype=weight.dtype)]
    out = []

    def stepped(trace, value, fired):
        value = trace.decay * value
        value = torch.where(fired > 0, 1.0, value) if trace.nearest else value + fired
        return torch.ones_like(value) if trace.one else value

    for t, x in enumerate(raster.double()):
        current = x @ weight.T + (0 if bias is None else bias) + drive
        v = torch.where(hold > 0, 0.0, current + decay * v)
        s = (v >= threshold + theta).double()
        v, hold = v * (1 - s), torch.maximum(hold - 1, period * s)
        theta = decay_theta * theta + theta_plus * s.mean(0)
        old = {}
        for on_post, traces, values in (False, rule.pre, pre), (True, rule.post, post):
            old[on_post] = [
                torch.ones_like(value) if each.one else each.decay * value
                for each, value in zip(traces, values, strict=True)
            ]
        pre = [stepped(*each, x) for each in zip(rule.pre, pre, strict=True)]
        post = [stepped(*each, s) for each in zip(rule.post, post, strict=True)]
        parts = [torch.zeros_like(pos), torch.zeros_like(neg)]
        for rate, on_post, other, own in rule.terms:
            fired = (s if on_post else x) * (1.0 if own is None else old[on_post][own])
            to, of = (fired, pre[other]) if on_post else (post[other], fired)
            parts[rate < 0] += abs(rate) * to.unsqueeze(2) * of.unsqueeze(1)
        if rule.tc_eligibility is not None:
            pos, neg = rule.eligibility * pos + parts[0], rule.eligibility * neg + parts[1]
            parts = [pos, neg]
        r = 1.0 if rule.reward is None else reward[t].reshape(-1, 1, 1)
        good, bad = (1.0, 0.0) if rule.reward is None else (r.clamp(min=0), r.neg().clamp(min=0))
        up = (good * parts[0] + bad * parts[1]).sum(0)
        down = (good * parts[1] + bad * parts[0]).sum(0)
        up = up if rule.rise is None else rule.rise.bounded(weight, up, True)
        down = down if rule.fall is None else rule.fall.bounded(weight, down, False)
        weight = weight + up - down
        weight = weight if limits is None else weight.clamp(*limits)
        out.append(s)
    parts = [] if rule.tc_eligibility is None else [pos, neg]
    after = OnlineState(v, hold.clamp(min=0), theta, pre, post, parts)
    return torch.stack(out).bool(), weight, after


def task_of(rule, steps, batch, inputs, size, density, dtype=torch.float64):
    """What both loops take, but the limits."""
    raster = spikes(steps, batch, inputs, density=density, seed=steps)
    weight = numbers(size, inputs, dtype=dtype).abs().clamp(max=1.4) / 2
    reward = numbers(steps, batch, dtype=dtype) * spikes(steps, batch, density=0.6)
    bias = numbers(size, seed=3, dtype=dtype) / 9
    return raster, weight, bias, rule, start(rule, batch, inputs, size, dtype), reward


def run(raster, weight, bias, rule, state, reward, limits=None):
    return online_loop.run_online(raster, weight, bias, NEURONS, rule, state, limits, reward)


def tensors(found):
    """All tensors of a result, one after another."""
    spiked, weight, state = found
    return [spiked, weight, *state[:3], *state.pre, *state.post, *state.eligible]


shapes = st.tuples(*(st.integers(1, most) for most in (14, 3, 9, 20)))


@settings(max_examples=250, derandomize=True)
@given(
    rule=rules(),
    shape=shapes,
    density=st.sampled_from([0.05, 0.4, 1.0]),
    bounded=st.booleans(),
    block=st.sampled_from([64, 3]),
)
def test_the_loop_equals_a_plain_one_and_two_pieces_of_it(rule, shape, density, bounded, block):
    online_loop._in_c.cache_clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(online_loop, "_LONGEST_BLOCK", block)
        patch.setattr(online_loop, "_TOTALS", 5 * shape[3])  # of five steps
        compare(rule, shape, density, bounded)
    online_loop._in_c.cache_clear()


def compare(rule, shape, density, bounded):
    *task, reward = task_of(rule, *shape, density)
    limits = (0.0137, 0.6731) if bounded else None
    if bounded:
        task[1] = task[1].clamp(*limits)
    found, expected = run(*task, reward, limits), plain(*task, limits, reward)
    assert torch.equal(found[0], expected[0])
    for one, other in zip(tensors(found)[1:], tensors(expected)[1:], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    raster, weight, bias, _, state = task
    half, outs = len(raster) // 2, []
    for part in (slice(0, half), slice(half, None)):
        if len(raster[part]):
            out, weight, state = run(raster[part], weight, bias, rule, state, reward[part], limits)
            outs.append(out)
    pieces = torch.cat(outs), weight, state
    for one, other in zip(tensors(found), tensors(pieces), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@settings(max_examples=30, derandomize=True)
@given(rule=rules(), dtype=st.sampled_from([torch.float32, torch.float64]), batch=st.integers(1, 2))
def test_no_result_depends_on_the_number_of_threads(rule, dtype, batch):
    *task, reward = task_of(rule, 24, batch, 9, 70, 0.8, dtype)
    lend, lent = library.work_memory, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "_SHARE", 1)
        patch.setattr(library, "work_memory", lambda size: lent.append(size) or lend(size))
        patch.setattr(online_loop, "_ROOM", 400)  # of five steps, or two
        found = []
        for count in (1, 2):
            with threads(count):
                found.append(tensors(run(*task, reward)))
    assert all(map(torch.equal, *found))
    assert [lent[0] % 64, lent[1] % 128] == [0, 0]  # each thread's memory is aligned


FULL = LoopTerms(
    (LoopTrace(0.9),), (LoopTrace(0.8), LoopTrace(0.5)),
    (LoopTerm(0.01, True, 0, 1), LoopTerm(-0.01, False, 0)), reward=1.0, tc_eligibility=3.0,
)  # fmt: skip


@pytest.mark.parametrize("terms", [
    LoopTerm(0.1, True, 1), LoopTerm(0.1, True, -1), LoopTerm(0.1, False, 2),
    LoopTerm(0.1, True, 0, 2), LoopTerm(0.1, False, 0, 1), LoopTerm(0.1, False, 0, -1),
])  # fmt: skip
def test_a_term_of_a_trace_that_is_not_there_is_rejected(terms):
    task = task_of(FULL._replace(terms=(terms,)), 3, 2, 4, 5, 0.5)
    with pytest.raises(ValueError, match=r"`terms` should be a product with one of"):
        run(*task)


@pytest.mark.parametrize("name", ["v", "hold", "theta", "pos", "neg", "pre", "post", "reward"])
def test_what_c_reads_is_there_and_has_its_shape(name):
    raster, weight, bias, rule, state, reward = task_of(FULL, 3, 2, 4, 5, 0.5)
    for wrong in (None, numbers(2)):
        other = {
            "pre": {"pre": [wrong]}, "post": {"post": [wrong, wrong]}, "reward": {},
            "pos": {"eligible": [wrong, wrong]}, "neg": {"eligible": [state.eligible[0], wrong]},
        }.get(name, {name: wrong})  # fmt: skip
        other = state._replace(**other)
        with pytest.raises((TypeError, ValueError), match=f"`{name}` should be"):
            run(raster, weight, bias, rule, other, wrong if name == "reward" else reward)
    with pytest.raises(ValueError, match="`post` should be 2 traces"):
        run(raster, weight, bias, rule, state._replace(post=[]), reward)
    with torch.device("meta"):  # where new tensors would have no memory
        found = run(raster, weight, bias, rule, state, reward)
    assert all(map(torch.equal, tensors(found), tensors(run(*task_of(FULL, 3, 2, 4, 5, 0.5)))))


def test_a_list_on_pairs_only_is_told_from_others():
    pre, post = LoopTrace(0.9), LoopTrace(0.8, nearest=True)
    both = LoopTerm(0.1, True, 0), LoopTerm(-0.2, False, 0)
    assert pairs_of(LoopTerms((pre,), (post,), both)) == (0.1, -0.2, 0.9, 0.8, False, True)
    assert pairs_of(LoopTerms((pre,), (), both[:1])) == (0.1, 0.0, 0.9, 0.0, False, False)
    pairs = LoopTerms((pre,), (post,), both)
    for other in (
        pairs._replace(rise=Room(1.0)), pairs._replace(reward=1.0),
        pairs._replace(pre=(pre, pre)), pairs._replace(post=(LoopTrace(1.0, one=True),)),
        pairs._replace(terms=(LoopTerm(0.1, True, 0, 0),)),
    ):  # fmt: skip
        assert pairs_of(other) is None
