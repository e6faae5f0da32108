"""The change of a rule, and weights that it changes in each step, have exact derivatives."""

import dataclasses
from functools import partial

import pytest
import torch
from references import RULES, reference
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import lightning_accum as la
from lightning_accum import FastWeights, change_of
from lightning_accum.rules import reward_modulated

T, B, IN, OUT = 6, 2, 3, 4
CASES = [
    (name, mode) for name, case in RULES.items() for mode in case.modes if name != "KernelSTDP"
]
LEARNED = [name for name, mode in CASES if mode == "cumulative"]


def drawn(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)).double()


def spikes(size, seed=0, steps=T, batch=B):
    return (drawn(steps, batch, size, seed=seed) < 0.4).double()


many_spikes = partial(spikes, steps=60, batch=8)


def given(name):
    return {"reward": drawn(T, B, seed=5) - 0.5} if RULES[name].rewarded else {}


class Delta(la.Rule):
    """Moves the output towards a target."""

    spikes = False
    lr: float = 1.0

    def terms(self, window):
        error = window.inputs["target"][window.steps] - window.post.values()
        return la.Term(self.lr, error, window.pre)


@pytest.mark.parametrize(("name", "mode"), CASES)
def test_the_change_is_that_of_a_naive_loop(name, mode):
    case, linear = RULES[name], nn.Linear(IN, OUT, bias=False).double()
    trainer = case.make(**({"trace_mode": mode} if len(case.modes) > 1 else {}))
    activity = spikes if case.spikes else partial(drawn, T, B)
    pre, post, rewards = activity(IN, seed=1), activity(OUT, seed=2), drawn(T, B, seed=5) - 0.5
    pos, neg = reference(case, linear, "weight", pre, post, mode, rewards, T)
    found = change_of(trainer.rule, pre, post, linear.weight, **given(name))
    torch.testing.assert_close(found, (pos - neg).sum(0), rtol=1e-12, atol=1e-12)
    assert found.any()
    for how in ("sum", "mean"):
        reduced = change_of(
            trainer.rule, pre, post, linear.weight, batch_reduction=how, **given(name)
        )
        torch.testing.assert_close(reduced, getattr(found, how)(0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", LEARNED)
def test_it_is_differentiable_in_all_that_it_takes(name):
    rule = RULES[name].make().rule
    fields = {
        key: torch.tensor(value).double()
        for key, value in vars(rule).items()
        if isinstance(value, float) and key.startswith(("lr", "tc"))
    }
    tensors = [drawn(T, B, IN, seed=1), drawn(T, B, OUT, seed=2), drawn(OUT, IN, seed=3)]
    inputs = given(name)
    if name == "WeightDependentSTDP":  # within its limits
        tensors[2] = tensors[2] * 0.8

    def change(pre, post, weight, *values):
        rates = dict(zip(fields, values, strict=False))
        rewards = dict(zip(inputs, values[len(rates) :], strict=True))
        return change_of(dataclasses.replace(rule, **rates), pre, post, weight, **rewards)

    every = [each.requires_grad_() for each in (*tensors, *fields.values(), *inputs.values())]
    assert torch.autograd.gradcheck(change, every)


def test_an_error_has_a_derivative():
    def change(error):
        pre, post, weight = spikes(IN, 1), spikes(OUT, 2), drawn(OUT, IN)
        return change_of(la.DeltaRule(0.1, tc_readout=5.0), pre, post, weight, error=error)

    assert torch.autograd.gradcheck(change, drawn(T, B, OUT).requires_grad_())


PAIRED = [
    lambda lr, one, other: la.STDP(lr, -0.5 * lr, one, other),
    lambda lr, one, other: la.STDP(lr, -0.5 * lr, one, other, trace_mode="nearest"),
    lambda lr, one, other: la.TripletSTDP(lr, lr, -lr, -lr, one, other, 2 * one, 30.0),
    lambda lr, one, other: la.MSTDP(lr, -lr, tc_post=one, tc_pre=other),
    lambda lr, one, other: la.MSTDPET(lr, -lr, tc_post=one, tc_pre=other, tc_eligibility=other),
]


@pytest.mark.parametrize("make", PAIRED)
def test_many_rules_of_one_form_are_one_call(make):
    pre, post, weight = many_spikes(IN, 1), many_spikes(OUT, 2), drawn(OUT, IN)
    rewarded = isinstance(make(0.1, 5.0, 5.0), (la.MSTDP, la.MSTDPET))
    inputs = {"reward": drawn(60, 8)} if rewarded else {}

    def change(lr, one, other):
        return change_of(make(lr, one, other), pre, post, weight, **inputs)

    def error(*values):
        return (change(*values) - 1.0).square().sum()

    values = 0.1 + drawn(50, seed=3), 1 + 99 * drawn(50, seed=4), 1 + 99 * drawn(50, seed=5)
    every = [*zip(*values, strict=True)]
    found = torch.func.vmap(change)(*values)
    expected = torch.stack([change(*each) for each in every])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    slope = torch.func.grad(error, (0, 1, 2))
    slopes = torch.func.vmap(slope)(*values)
    learned = [each.clone().requires_grad_() for each in values]
    torch.func.vmap(error)(*learned).sum().backward()
    expected = [torch.stack(each) for each in zip(*(slope(*each) for each in every), strict=True)]
    for one, each, other in zip(slopes, learned, expected, strict=True):
        size = float(other.abs().max())
        for grown in (one, each.grad):
            torch.testing.assert_close(grown, other, rtol=0, atol=1e-10 * size)


def test_many_rules_share_products():
    pre, post = many_spikes(40, 1).float(), many_spikes(30, 2).float()

    def change(lr, one, other):
        rule = la.STDP(lr, -lr, one, other)
        return change_of(rule, pre, post, torch.zeros(30, 40), batch_reduction="mean")

    cost = []
    for run, many in ((change, ()), (torch.func.vmap(change), (100,))):
        values = [5.0 + 20.0 * drawn(*many, seed=seed).float() for seed in range(3)]
        with FlopCounterMode(display=False) as counter:
            run(*values)
        cost.append(counter.get_total_flops())
    assert cost[1] < 16 * cost[0]


def test_samples_and_rules_are_mapped_over_together():
    activity = torch.stack([many_spikes(IN, seed) for seed in range(3)])
    times, weight = 5.0 + torch.arange(40).double(), drawn(IN, IN)

    def change(pre, tc):
        return change_of(la.STDP(0.1, -0.1, tc, tc), pre, pre, weight)

    rules = torch.func.vmap(change, (None, 0))
    found = torch.func.vmap(rules, (0, None))(activity, times)
    expected = torch.stack([rules(each, times) for each in activity])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    pairs = torch.func.vmap(change)(activity, times[:3])
    expected = torch.stack([change(*each) for each in zip(activity, times, strict=False)])
    torch.testing.assert_close(pairs, expected, rtol=1e-12, atol=1e-12)
    none = change_of(la.STDP(0.1, -0.1), activity[0, :0], activity[0, :0], weight)
    assert not torch.func.vmap(change, (None, 0))(activity[0, :0], times).any()
    assert none.shape == (8, IN, IN)
    nobody = activity[0, :, :0]
    assert not change_of(la.Hebb(1.0), nobody, nobody, weight, batch_reduction="mean").any()


def test_synapses_have_rates_of_their_own():
    pre, post, rates = spikes(IN, 1), spikes(OUT, 2), drawn(OUT, IN)
    one = change_of(la.Hebb(1.0), pre, post, rates)
    torch.testing.assert_close(change_of(la.Hebb(rates), pre, post, rates), rates * one)


def recurrent(rule, **options):
    torch.manual_seed(0)
    return FastWeights(nn.Linear(IN, OUT).double(), rule, nn.Tanh(), time_dim=0, **options)


def parameter(*shape):
    return nn.Parameter(0.1 + drawn(*shape, seed=7))


@pytest.mark.parametrize("name", LEARNED)
def test_fast_weights_are_a_loop_of_changes(name):
    case = RULES[name]
    rule, inputs = case.make().rule, given(name)
    fast = recurrent(rule, alpha=parameter(OUT, IN), decay=0.9)
    pre, W = drawn(T, B, IN, seed=1), fast.connection.weight
    found = fast(pre, **inputs)
    for b in range(B):
        F, weights = torch.zeros_like(W), []
        for t in range(T):
            weights.append(W + fast.alpha * F)
            y = torch.tanh(weights[t] @ pre[t, b] + fast.connection.bias)
            torch.testing.assert_close(found[t, b], y, rtol=1e-12, atol=1e-12)
            # the change of a step is what the window up to it adds; its weight is that of the step
            until = [
                change_of(
                    rule, pre[:n, b : b + 1], found[:n, b : b + 1], weights[t],
                    **{key: value[:n, b : b + 1] for key, value in inputs.items()},
                )
                if n else 0.0
                for n in (t, t + 1)
            ]  # fmt: skip
            F = 0.9 * F + (until[1] - until[0])[0]


@pytest.mark.parametrize(
    "rule", [la.Hebb(parameter()), la.STDP(0.2, parameter(), parameter()), la.Oja(0.3)]
)
def test_they_are_differentiable_in_all_parameters_step_by_step_and_in_pieces(rule):
    rule = dataclasses.replace(rule)
    options = {"alpha": parameter(OUT, IN), "decay": parameter()}
    whole = recurrent(rule, **options)
    pieces, steps = (
        FastWeights(whole.connection, rule, nn.Tanh(), **options, **more)
        for more in ({"time_dim": 0, "checkpoint_every": 4}, {})
    )
    x = drawn(T, B, IN, seed=1)
    names, params = zip(*whole.named_parameters(), strict=True)

    def run(*values):
        whole.reset()
        return torch.func.functional_call(whole, dict(zip(names, values, strict=True)), (x,))

    assert torch.autograd.gradcheck(run, params)
    found = [
        torch.autograd.grad(module.square().sum(), params)
        for module in (run(*params), pieces(x), torch.stack([steps(now) for now in x]))
    ]
    for other in found[1:]:
        torch.testing.assert_close(other, found[0], rtol=1e-12, atol=1e-12)


KEPT = {
    "Hebb": lambda: la.Hebb(parameter()),
    "STDP": lambda: la.STDP(parameter(), -0.3, parameter(), trace_mode="nearest"),
    "TripletSTDP": lambda: la.TripletSTDP(0.1, 0.2, -0.1, parameter()),
    "Delta": lambda: Delta(parameter()),
}


@pytest.mark.parametrize("name", KEPT)
def test_factors_are_kept_where_they_are_fewer_numbers(name):
    size, share, x = 24, parameter(), drawn(9, B, 24, seed=1) - 0.5
    inputs = {"target": x} if name == "Delta" else {}
    decay, rule, slow = parameter(), KEPT[name](), nn.Linear(size, size).double()
    found = []
    for alpha in (share, share * torch.ones(size, size).double()):
        fast = FastWeights(slow, rule, nn.Tanh(), alpha=alpha, decay=decay, time_dim=0)
        saved = {}

        def keep(tensor, saved=saved):
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
            return tensor

        y = [fast(x[:3], **{k: v[:3] for k, v in inputs.items()})]
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            y.append(fast(x[3:], **{k: v[3:] for k, v in inputs.items()}))
        learned = [share, decay, *slow.parameters(), *rule_parameters(rule)]
        grads = torch.autograd.grad(torch.cat(y).square().sum(), learned)
        found.append((torch.cat(y), *fast.get_extra_state().values(), *grads))
        found.append(sum(each.nbytes() for each in saved.values()))
    torch.testing.assert_close(found[0], found[2], rtol=1e-12, atol=1e-12)
    assert found[1] < found[3] / 2


def rule_parameters(rule):
    return [value for value in vars(rule).values() if isinstance(value, nn.Parameter)]


def test_a_state_goes_on_elsewhere_and_a_batch_of_another_size_at_rest():
    x = drawn(T, B, IN)
    one, other = (recurrent(la.TripletSTDP(0.1, 0.2, -0.1, -0.2)) for _ in range(2))
    one(x)
    other.load_state_dict(one.state_dict())
    assert torch.equal(other(x), one(x))
    fresh = recurrent(la.TripletSTDP(0.1, 0.2, -0.1, -0.2))
    assert torch.equal(one(x[:, :1]), fresh(x[:, :1]))
    one.reset()
    fresh.reset()
    assert torch.equal(one(x[:0]), fresh(x[:0]))


class Sided(la.Rule):
    """Has the terms that a function makes of a window."""

    spikes = False
    of: object = None

    def terms(self, window):
        return self.of(window)


def ways(rule, out):
    """Returns the ways in which the change of a rule is differentiated, for `IN` inputs."""
    x, y = drawn(3, B, IN), drawn(3, B, out)  # few steps, for which factors are kept
    linears = [nn.Linear(IN, out).double() for _ in range(2)]
    shares = 1.0, torch.ones(out, IN).double()  # that of factors, and that of dense weights
    fast = [FastWeights(w, rule, alpha=a, time_dim=0) for w, a in zip(linears, shares, strict=True)]
    weight = linears[0].weight
    return [
        *(partial(each, x) for each in fast),
        partial(change_of, rule, x, y, weight),
    ]


WRONG_SIDES = {
    "exchanged": (lambda w: la.Term(1.0, w.pre, w.post), "exchanged: return"),
    "exchanged traces": (
        lambda w: la.Term(1.0, w.pre.trace(5.0), w.post.trace(5.0)), "exchanged: return"
    ),
    "exchanged one": (lambda w: la.Term(1.0, w.one, w.post), "exchanged: return"),
    "exchanged and rewarded": (
        lambda w: reward_modulated(w, [la.Term(1.0, w.pre, w.post)], 1.0), "exchanged: return"
    ),
    "no time": (lambda w: la.Term(1.0, w.post.values().mean(0), w.pre), "same T and B. Found"),
    "one unit": (
        lambda w: la.Term(1.0, w.post.values()[..., :1], w.pre), r"have sides \[T, B, .\] and"
    ),
}  # fmt: skip


@pytest.mark.parametrize("out", [IN, OUT])
@pytest.mark.parametrize("name", WRONG_SIDES)
def test_sides_of_a_term_are_checked_as_in_a_trainer(name, out):
    of, words = WRONG_SIDES[name]
    for way in ways(Sided(of), out):
        with pytest.raises(ValueError, match=words):
            way()


def test_both_sides_may_be_of_one_neuron_only_if_the_weight_has_its_shape():
    rule = Sided(lambda window: la.Term(1.0, window.pre, window.pre))
    for way in ways(rule, OUT):
        with pytest.raises(ValueError, match=r"sides \[T, B, 4\] and \[T, B, 3\]. Found"):
            way()
    for way in ways(rule, IN):
        way()


@pytest.mark.parametrize("alpha", [1.0, torch.ones(OUT, IN).double()])
def test_without_a_change_only_the_current_is_added_before_the_activation(alpha):
    x, current = drawn(3, B, IN), drawn(3, B, OUT)
    for rule in (la.Hebb(0.0), Sided(lambda window: [])):
        fast = recurrent(rule, alpha=alpha)
        expected = torch.tanh(fast.connection(x) + current)
        torch.testing.assert_close(fast(x, current), expected, rtol=1e-12, atol=1e-12)


def test_a_branch_on_values_is_told_as_one():
    def branched(window):
        lr = 0.1 if window.post.values().mean() > 0 else 0.2
        return la.Term(lr, window.post, window.pre)

    def read(window):
        return la.Term(window.post.values().mean().item(), window.post, window.pre)

    for of in (branched, read):
        *fast, change = ways(Sided(of), OUT)
        assert change().any()
        for way in fast:
            with pytest.raises(TypeError, match=r"`Sided` .*values of activity.*`torch.where`"):
                way()

    def broken(window):
        raise RuntimeError("of its own")

    with pytest.raises(RuntimeError, match="of its own"):
        ways(Sided(broken), OUT)[0]()


class Targeted(la.Rule):
    """Checks a field of its own, as the rule of `write-your-own-rule.md` does."""

    lr: float = 0.1
    target: float = 0.5

    def check(self):
        if not 0 <= self.target < float("inf"):
            raise ValueError("a target")

    def terms(self, window):
        one = la.Term(-self.lr * self.target, window.post, window.one)
        return [la.Term(self.lr, window.post, window.pre), one]


def test_fields_that_vmap_maps_over_are_not_checked():
    pre, post, weight = drawn(T, B, IN), drawn(T, B, OUT), torch.zeros(OUT, IN)

    def change(target):
        return change_of(Targeted(target=target), pre, post, weight)

    targets = torch.tensor([0.0, 0.5, 2.0]).double()
    found = torch.func.vmap(change)(targets)
    torch.testing.assert_close(found, torch.stack([change(each) for each in targets]))
    slopes = torch.func.vmap(torch.func.grad(lambda each: change(each).sum()))(targets)
    torch.testing.assert_close(slopes, torch.full((3,), -0.1 * IN * float(post.sum())).double())
    for refused in (-targets[1], -1.0):
        with pytest.raises(ValueError, match="a target"):
            change(refused)


@pytest.mark.parametrize("lr", [0.5, torch.tensor(0.5)])
def test_the_decay_of_a_rule_is_not_that_of_the_fast_weights(lr):
    class Decaying(la.Rule):
        lr: float = 0.5
        decay: float = 0.25

        def terms(self, window):
            return la.Term(self.lr * self.decay, window.post, window.pre)

    x = drawn(T, B, IN)
    found = recurrent(Decaying(lr), decay=0.5)(x)
    torch.testing.assert_close(found, recurrent(la.Hebb(0.125), decay=0.5)(x))


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_spikes_may_be_of_any_dtype(dtype):
    x = spikes(IN, 1)
    runs = (recurrent(la.STDP(0.1, -0.1))(each) for each in (x.double(), x.to(dtype)))
    assert torch.equal(*runs)


def test_real_values_are_graded_spikes():
    pre, post = drawn(T, B, IN) - 0.5, drawn(T, B, OUT, seed=1)
    half, whole = (
        change_of(la.STDP(0.1, -0.2), size * pre, post, torch.zeros(OUT, IN)) for size in (0.5, 1)
    )
    torch.testing.assert_close(half, 0.5 * whole)
    assert whole.any()


TCS = torch.full((2, 3), 20.0)  # one for each synapse
LINEAR, X, SQUARE = nn.Linear(IN, OUT), torch.ones(T, B, IN), torch.ones(IN, IN)
REFUSED = [
    (lambda: change_of(3, X, X, X), TypeError, "`rule` should be a rule, such as"),
    (lambda: change_of(la.Hebb(1.0), X, X, torch.ones(3, 3), rewrad=1.0), TypeError,
     "inputs of `Hebb` should be those that it reads. Found `rewrad`"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0))(X[0], rewrad=X[0]), TypeError, "Found `rewrad`"),
    (lambda: change_of(la.Hebb(1.0), X[0], X, X), ValueError,
     r"`pre` should have the shape \[T, B, in\]. Found `pre.shape = \(2, 3\)`"),
    (lambda: change_of(la.Hebb(1.0), X, X, torch.ones(4, 3, 3, 3)), ValueError,
     "for a convolution, `unfold` its input, and give places as samples"),
    (lambda: change_of(la.KernelSTDP(lambda x: x), X, X, torch.ones(3, 3)), TypeError,
     "should be products of activity and its traces.*Found ages of spikes"),
    (lambda: FastWeights(nn.Conv1d(1, 1, 1), la.Hebb(1.0)), TypeError, "`connection` should be a"),
    (lambda: FastWeights(LINEAR, la.RuleTrainer(la.Hebb(1.0))), TypeError, "`rule` should be a"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0), alpha=torch.ones(3)), ValueError,
     r"`alpha` should have the shape \[\], or \[4, 3\].*Found `alpha.shape = \(3,\)`"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0), decay=torch.tensor(torch.nan)), ValueError,
     r"`decay` should be finite, real numbers\. Found `decay = tensor\(nan\)`"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0), alpha=torch.tensor(1j)), ValueError,
     r"`alpha` should be finite, real numbers\. Found"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0), checkpoint_every=0), ValueError, "checkpoint_every"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0))(X), ValueError, r"\[B, 3\].*pass `time_dim=0`"),
    (lambda: FastWeights(LINEAR, la.MSTDP(0.1, 0.1))(X[0], reward=torch.ones(3)), ValueError,
     r"`reward` should have the shape \[B, \.\.\.\], with those of `x`, \[2\]. Found .* \(3,\)"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0))(X[0], X[0]), ValueError,
     r"`current` should have the shape \[B, 4\]. Found .*the last dimension should be 4"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0))(X[0], X[0, :1]), ValueError,
     r"`current` should have the shape \[B, 4\], with those of `x`, \[2\]. Found .* \(1, 3\)"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0), time_dim=0)(torch.ones(T, B, 2)), ValueError,
     r"`x` should have the shape \[T, B, 3\]. Found .*: the last dimension should be 3"),
    (lambda: FastWeights(LINEAR, la.MSTDP(0.1, 0.1))(X[0]), ValueError, r"pass `reward=\.\.\.`\.$"),
    (lambda: change_of(la.MSTDPET(0.1, 0.1), X, X, SQUARE), ValueError, r"pass `reward=\.\.\.`\.$"),
    (lambda: change_of(la.MSTDP(0.1, 0.1), X, X, SQUARE, reward=X[:2, :, 0]), ValueError,
     r"Found \[2, 2\]: give a number for each sample of the window\.$"),
    (lambda: change_of(la.DeltaRule(0.1), X, X, SQUARE), ValueError, r": pass `error=\.\.\.`\.$"),
    (lambda: change_of(Delta(), X, X, SQUARE), KeyError, r": pass `target=\.\.\.`, or read it by"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0), nn.Tanh), TypeError,
     r"`activation` should be a module, such as `nn.Tanh\(\)`, or None. Found the class `Tanh`"),
    (lambda: change_of(la.Hebb(1.0), X, X[1:], SQUARE), ValueError,
     r"`post` should have .* T and B of `pre`, \[6, 2\]. Found `post.shape = \(5, 2, 3\)`"),
    (lambda: change_of(la.Hebb(1.0), X, X, torch.ones(4, 3)), ValueError,
     r"`weight` should have .*= \[3, 3\]. Found `weight.shape = \(4, 3\)`: give that from"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0), lambda y: (y, None))(X[0]), TypeError,
     r"`activation` should return a tensor \[2, 4\], as it takes. Found a `tuple`: wrap it in"),
    (lambda: FastWeights(LINEAR, la.Hebb(1.0), nn.Flatten(0))(X[0]), TypeError, r"Found \[8\]"),
    (lambda: FastWeights(nn.Linear(3, 2), la.STDP(0.1, -0.1, tc_pre=TCS))(X[0]), ValueError,
     r"`tc` should have the shape \[\]. Found `tc.shape = \(2, 3\)`: give a number that counts"),
    (lambda: change_of(la.STDP(0.1, -0.1, tc_pre=TCS), X, X[..., :2], torch.ones(2, 3)), ValueError,
     r"`tc` should have the shape \[\]. Found `tc.shape = \(2, 3\)`: give a number that counts"),
    (lambda: la.STDP(0.1, -0.1, tc_pre=nn.Parameter(torch.tensor(-1.0))), ValueError,
     r"`tc_pre` should be a positive, finite number of ms. Found `tc_pre = -1.0`"),
    (lambda: la.STDP(0.1, -0.1, tc_pre=torch.tensor([[5.0, 0.0]])), ValueError, "`tc_pre = 0.0`"),
    (lambda: la.STDP(nn.Parameter(torch.tensor(torch.nan)), -0.1), ValueError,
     "`lr_post` should be a finite number. Found `lr_post = nan`"),
    (lambda: la.RuleTrainer(la.Hebb(torch.tensor(0.1))).register_cell("a", la.Cell(LINEAR, LINEAR)),
     TypeError, "`lr` of `Hebb` should be a number in a trainer. Found a tensor"),
]  # fmt: skip


@pytest.mark.parametrize("rule", [la.STDP(0.1, -0.1), la.BCM(0.1), la.MSTDPET(0.1, 0.1)])
def test_loaded_traces_of_another_shape_are_refused_and_change_nothing(rule):
    inputs = {"reward": 1.0} if isinstance(rule, la.MSTDPET) else {}
    fast, x = recurrent(rule), drawn(T, B, IN, seed=1)
    fast(x, **inputs)
    before = fast.get_extra_state()

    def go_on(state):
        fast.set_extra_state(state)
        fast(x, **inputs)

    for name in before:
        for bad in (torch.ones(()), torch.ones(B), torch.ones(B, 5), torch.ones(B + 1, IN)):
            fast.set_extra_state(before)
            with pytest.raises(RuntimeError, match=rf"should hold .* as `{name}`. Found a tensor"):
                go_on({**before, name: bad})
            taken = fast.get_extra_state()
            assert all(torch.equal(taken[k], v) for k, v in before.items() if k != name)
    fast.reset()
    fast(x, **inputs)


def test_loaded_traces_of_another_time_constant_are_refused():
    one, other, x = (
        recurrent(la.STDP(0.1, -0.1)),
        recurrent(la.STDP(0.1, -0.1, 9.0)),
        drawn(T, B, IN),
    )
    one(x)
    other.set_extra_state(one.get_extra_state())
    with pytest.raises(RuntimeError, match=r"should hold .* `post .* trace .*`\. Found `None`"):
        other(x)
    other.reset()
    other(x)


def test_a_refused_call_with_another_batch_leaves_the_state():
    fast, x = recurrent(la.Hebb(0.1)), drawn(T, B, IN, seed=1)
    fast(x)
    before = fast.get_extra_state()
    with pytest.raises(TypeError, match="Found `rewrad`"):
        fast(x[:, :1], rewrad=1.0)
    torch.testing.assert_close(fast.get_extra_state(), before, rtol=0, atol=0)


def test_a_state_at_rest_is_loaded_after_a_call():
    fast, x = recurrent(la.STDP(0.1, -0.1)), drawn(T, B, IN, seed=1)
    rest = fast.state_dict()
    first = fast(x)
    fast.load_state_dict(rest)
    torch.testing.assert_close(fast(x), first, rtol=0, atol=0)


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_what_makes_no_sense_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
