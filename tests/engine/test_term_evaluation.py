"""What the engine makes of terms, whole or in pieces, beside the sums of every rule."""

from dataclasses import replace

import pytest
import torch
from clamped_layers import layer, learned, raster, show
from connections import KINDS
from forced_summation import FORMS, evaluated_in, in_forms
from references import RULES
from subtests import turns
from torch import nn

from lightning_accum import BCM, STDP, Cell, EProp, Rule, RuleTrainer, Serial, Term, get_updater
from lightning_accum import nn as layers
from lightning_accum.engine import window_changes as run_module
from lightning_accum.engine.state_keys import StateKey
from lightning_accum.observe.monitor import copied


@turns("path", FORMS)
@in_forms("path")
def test_both_sides_are_weighted_by_sample_and_a_rules_own_tensors_are_only_read(path):
    pre, post, both = raster(6, 3, 5, seed=1), raster(6, 3, 4, seed=2), torch.rand(2, 6, 3, 1)
    first, second = own = raster(2, 6, 3, 4, density=0.9)
    kept = own.clone()

    class Weighted(Rule):
        def terms(self, window):
            both_sides = Term(1.0, window.post * both[0], window.pre * both[1])
            return [both_sides, Term(0.5, first, window.pre), Term(2.0, second, window.pre)]

    found = learned(RuleTrainer(Weighted(), backend=path, batch_reduction="sum"), pre, post)
    sides = (post * both[0], pre * both[1]), (0.5 * first + 2 * second, pre)
    torch.testing.assert_close(found, sum(torch.einsum("tbo,tbi->oi", *each) for each in sides))
    assert torch.equal(own, kept)


def test_rates_of_zero_learn_nothing():
    assert learned(RuleTrainer(STDP(0.0, 0.0)), raster(4, 2, 3), raster(4, 2, 2)) is None


def test_a_trace_passes_on_because_it_is_used_not_because_it_was_made():
    class Half(Rule):
        def terms(self, window):
            window.pre.trace(5.0)  # made, and left alone
            return [Term(1.0, window.post, window.pre.trace(9.0))]

    rule, model = RuleTrainer(Half()), layer(3, 2)
    unit = rule.register_cell("cell", model.cell)
    show(model, raster(4, 1, 3), raster(4, 1, 2))
    rule()
    (key,) = unit.state.carried
    assert (key.scope, key.kind) == ("sample", "pre cumulative trace")
    assert key.setting == pytest.approx(torch.tensor(-1 / 9.0).exp().item())


@pytest.mark.parametrize(("made", "name", "kind"), [
    (STDP(0.1, -0.1), "tc_pre", "pre cumulative trace"), (BCM(0.1), "tc_threshold", "post average"),
])  # fmt: skip
def test_a_time_constant_that_changed_on_resuming_is_noticed(made, name, kind, recwarn):
    def run():
        show(model, raster(4, 1, 3, seed=5), raster(4, 1, 2, seed=6))
        rule()

    state = None
    for tc in (20.0, 20.0, 30.0):
        rule, model = RuleTrainer(replace(made, **{name: tc})), layer(3, 2)
        rule.register_cell("cell", model.cell)
        if state is not None:
            rule.load_state_dict(state)
        if tc == 30.0:
            with pytest.warns(RuntimeWarning, match=f"cell `cell` has a {kind}.* setting of 0.95"):
                run()
        run()  # of which nothing is told, or not again
        state = state or rule.state_dict()
    assert not recwarn.list


@turns("text", ["", "pre", "sample:1.0", "other:trace:1.0"])
def test_a_name_of_another_version_is_refused(text):
    with pytest.raises(RuntimeError, match="A name in a cell's state should be"):
        StateKey.parse(text)


class Shifted(nn.Module):
    """A connection of one's own, with a second parameter and a buffer of each kind."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 4))
        self.bias = nn.Parameter(torch.rand(3))
        self.register_buffer("scale", torch.ones(4))
        self.register_buffer("order", torch.arange(4))

    def forward(self, x):
        return nn.functional.linear((x * self.scale)[..., self.order], self.weight, self.bias)


class Tied(Shifted):
    """The parameter has two names, of which torch takes the first."""

    def __init__(self):
        super().__init__()
        self.alias, self.weight = self.weight, None
        self.weight = self.alias


NARROW = {
    **{kind: KINDS[kind][:2] for kind in ("linear", "conv2d", "conv2d, circular", "masked")},
    "conv1d, transposed": (lambda: nn.ConvTranspose1d(2, 3, 2, stride=2), (2, 3)),
    "conv2d, transposed": (lambda: nn.ConvTranspose2d(2, 4, 2, groups=2), (2, 2, 3)),
    "conv2d, same": (lambda: nn.Conv2d(1, 2, 2, padding="same"), (1, 4, 4)),
    "with two parameters": (Shifted, (4,)),
    "with two names": (Tied, (4,)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
@turns("turn, name, kind", [  # each rule with some kinds, and each kind with some rules
    (i + j, name, kind) for i, name in enumerate(RULES) for j, kind in enumerate(NARROW)
    if (i + j) % 3 == 0
])  # fmt: skip
def test_narrow_activity_is_computed_in_float32(turn, name, kind):
    case, (make, shape) = RULES[name], NARROW[kind]
    torch.manual_seed(0)
    dtype = (torch.float16, torch.bfloat16)[turn % 2]
    narrow, found = make().to(dtype), []
    size = narrow(torch.zeros(3, *shape, dtype=dtype)).shape[1:]
    pre, post = raster(6, 3, *shape, density=0.3), raster(6, 3, *size, density=0.3, seed=1)
    for module in (narrow, copied(narrow).double()):
        neuron, name = nn.Identity(), "weight_orig" if kind == "masked" else "weight"
        rule = case.make(params=name)
        rule.register_cell("cell", Cell(module, neuron))
        weight = getattr(module, name)
        for x, y in zip(pre, post, strict=True):
            module(x.to(weight.dtype)), neuron(y.to(weight.dtype))
        rule(**({"reward": 0.5} if case.rewarded else {}))
        pending = getattr(get_updater(module), name)
        part = pending.neg if pending.pos is None else pending.pos
        assert part.dtype == torch.promote_types(weight.dtype, torch.float32)
        found.append(pending.update(weight).double())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


class Pair(nn.Module):
    def forward(self, x):
        return {"potential": x - 0.5, "spikes": (x > 0).to(x.dtype)}


def pick_spikes(out):
    return out["spikes"]


def test_a_picker_says_where_the_activity_is():
    fc, neuron = nn.Linear(3, 2), Pair()
    rule = RuleTrainer(STDP(1.0, 0.0), picker=pick_spikes)
    rule.register_cell("cell", Cell(fc, neuron))
    neuron(fc(torch.ones(1, 3)))
    rule()
    with pytest.raises(TypeError, match=r"`picker` should be a callable .* Found `str`"):
        RuleTrainer(STDP(1.0, 0.0), picker="spikes")


def test_each_piece_has_its_own_events(monkeypatch):
    spikes = raster(40, 8, 1000, density=0.02).bool()
    post = raster(40, 8, 100, density=0.02, seed=1).bool()
    found = []
    for elements in (1 << 23, 8 * 1100 * 15):
        monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", elements)
        fc, neuron = layers.Linear(1000, 100, bias=False), nn.Identity()
        rule = RuleTrainer(STDP(1.0, -1.0), time_dim=0)
        rule.register_cell("cell", Cell(fc, neuron))
        for _ in range(3):  # the events of floats are found as they are recorded again
            rule.clear()
            fc(spikes.float()), neuron(post)
        assert rule.get_monitor("cell", "pre").reducer.events() is not None
        with evaluated_in("pre"):
            rule()
        found.append(get_updater(fc).weight)
    torch.testing.assert_close(found[0].pos, found[1].pos)
    torch.testing.assert_close(found[0].neg, found[1].neg)


def test_states_that_only_the_preparation_reads_take_no_room_in_a_piece(monkeypatch):
    seen = []

    class Noting(EProp):
        def terms(self, window):
            seen.append(window.steps)
            return super().terms(window)

    model = Serial(layers.Linear(3, 4), layers.SurrogateLIF(4, beta=0.5, time_dim=0))
    rule = RuleTrainer(Noting(0.1), time_dim=0, carry=False)
    rule.register_cell("cell", model.cell)
    monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", 5 * 2 * (3 + 4))
    model((torch.rand(10, 2, 3) < 0.5).float())
    rule(error=torch.randn(10, 2, 4))
    assert seen == [slice(0, 5), slice(5, 10)]
