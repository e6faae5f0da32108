"""A long window comes to the rule in pieces, and makes no difference."""

import pytest
import torch
from forms import evaluated_in
from rasters import layer, raster, show
from references import RULES
from torch import nn
from turns import turns

from lightning_accum import STDP, Cell, EProp, Serial, get_updater
from lightning_accum import nn as layers
from lightning_accum.engine import accumulate as run_module


@turns("by", ["sum", "mean", "amax"])
@turns("name", RULES)
def test_pieces_are_exact_and_one_contribution(name, by, monkeypatch):
    case = RULES[name]
    pre, post = raster(23, 3, 4, density=0.3), raster(23, 3, 2, density=0.3, seed=1)
    if not case.spikes:
        pre, post = pre + 0.5, post - 0.3
    reward = torch.randn(23, 3).double()
    found = []
    for elements in (1 << 23, 3 * 6 * 4):  # all at once, or four steps at a time
        monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", elements)
        model, rule = layer(4, 2), case.make(params=("weight", "bias"), batch_reduction="mean")
        nn.init.constant_(model.connection.weight, 0.5)
        nn.init.constant_(model.connection.bias, 0.5)
        rule.register_cell("cell", model.cell)
        accumulator = get_updater(model.connection).weight
        accumulator.reduction(by)
        for _ in range(2):  # the second begins with what the first carried
            show(model, pre, post)
            rule(**({"reward": reward} if case.rewarded else {}))
        bias = get_updater(model.connection).bias
        found.append((accumulator.pos, accumulator.neg, bias.pos, bias.neg))
    for one, other in zip(*found, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("carry", [True, False])
@pytest.mark.parametrize("pairing", ["presynaptic", "reduced"])
def test_pairs_of_each_synapse_reach_over_pieces(pairing, carry, monkeypatch):
    found = []
    for elements in (1 << 23, 3 * 6 * 4):
        monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", elements)
        model = layer(4, 2)
        rule = STDP(0.3, -0.2, trace_mode="nearest", pairing=pairing, carry=carry)
        rule.register_cell("cell", model.cell)
        for seed in (0, 2):
            show(model, raster(23, 3, 4, seed=seed), raster(23, 3, 2, seed=seed + 1))
            rule()
        found.append(get_updater(model.connection).weight.update(model.connection.weight))
    torch.testing.assert_close(*found)


@turns("dtype", [torch.float16, torch.bfloat16])
@turns("name", RULES)
def test_narrow_activity_is_computed_in_float32(name, dtype):
    case = RULES[name]
    pre, post = raster(40, 3, 5, density=0.3), raster(40, 3, 2, density=0.3, seed=1)
    found = []
    for kind in (dtype, torch.float64):
        neuron, fc = nn.Identity(), nn.Linear(5, 2, bias=False, dtype=kind)
        nn.init.constant_(fc.weight, 0.5)
        rule = case.make()
        rule.register_cell("cell", Cell(fc, neuron))
        for x, y in zip(pre, post, strict=True):
            fc(x.to(kind)), neuron(y.to(kind))
        rule(**({"reward": 0.5} if case.rewarded else {}))
        weight = get_updater(fc).weight
        part = weight.neg if weight.pos is None else weight.pos
        assert part.dtype == torch.promote_types(kind, torch.float32)
        found.append(weight.update(fc.weight).double())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


class Pair(nn.Module):
    def forward(self, x):
        return {"potential": x - 0.5, "spikes": (x > 0).to(x.dtype)}


def pick_spikes(out):
    return out["spikes"]


def test_a_picker_says_where_the_activity_is():
    fc, neuron = nn.Linear(3, 2), Pair()
    rule = STDP(1.0, 0.0, picker=pick_spikes)
    rule.register_cell("cell", Cell(fc, neuron))
    neuron(fc(torch.ones(1, 3)))
    rule()
    with pytest.raises(TypeError, match=r"`picker` should be a callable .* Found `str`"):
        STDP(1.0, 0.0, picker="spikes")


def test_each_piece_has_its_own_events(monkeypatch):
    spikes = raster(40, 8, 1000, density=0.02).bool()
    post = raster(40, 8, 100, density=0.02, seed=1).bool()
    found = []
    for elements in (1 << 23, 8 * 1100 * 15):
        monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", elements)
        fc, neuron = layers.Linear(1000, 100, bias=False), nn.Identity()
        rule = STDP(1.0, -1.0, time_dim=0)
        rule.register_cell("cell", Cell(fc, neuron))
        fc(spikes), neuron(post)
        assert rule.get_monitor("cell", "pre").reducer.events() is not None  # found by the layer
        with evaluated_in("pre"):
            rule()
        found.append(get_updater(fc).weight)
    torch.testing.assert_close(found[0].pos, found[1].pos)
    torch.testing.assert_close(found[0].neg, found[1].neg)


def test_states_that_only_the_preparation_reads_take_no_room_in_a_piece(monkeypatch):
    model = Serial(layers.Linear(3, 4), layers.SurrogateLIF(4, beta=0.5, time_dim=0))
    rule = EProp(0.1, time_dim=0, carry=False)
    rule.register_cell("cell", model.cell)
    monkeypatch.setattr(run_module, "_PIECE_ELEMENTS", 5 * 2 * (3 + 4))
    seen = []
    terms = rule.terms
    monkeypatch.setattr(
        rule, "terms", lambda window, h: (seen.append(window.steps), terms(window, h))[1]
    )
    model((torch.rand(10, 2, 3) < 0.5).float())
    rule(error=torch.randn(10, 2, 4))
    assert seen == [slice(0, 5), slice(5, 10)]
