"""A rule of one's own takes the way of the package's, and gives the same bits, in every mode."""

import gc
import sys
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import own_rules
import pytest
import torch
from test_defaults import rules
from torch import nn

import lightning_accum as la
from lightning_accum import RuleTrainer
from lightning_accum import nn as layers

ROOT = Path(la.__file__).parent
LR = {"lr": 0.01}
PAIR = {"lr_post": 0.02, "lr_pre": -0.01, "tc_post": 8.0, "tc_pre": 12.0}
RULES = {
    **dict.fromkeys(("Hebb", "AntiHebb", "Oja", "Sanger", "WTAHebb", "SoftHebb"), LR),
    **dict.fromkeys(("STDP", "MSTDP", "MSTDPET"), PAIR),
    "InhibitorySTDP": LR,
    "WeightDependentSTDP": {**PAIR, "power_pos": 0.4, "w_max": 2.0},
    "TripletSTDP": {
        "lr_post_pair": 0.01, "lr_post_triplet": 0.02, "lr_pre_pair": -0.01,
        "lr_pre_triplet": -0.02,
    },
    "Homeostasis": {"lr": 0.01, "target_rate": 200.0},
    "Covariance": {"lr": 0.01, "tc_average": 50.0},
    "BCM": {"lr": 0.01, "tc_threshold": 50.0},
    "Clopath": {"lr_post": 0.02, "lr_pre": -0.01, "theta_neg": 0.0, "theta_pos": 0.5},
}  # fmt: skip
# Not sums of products: nearest pairs of spikes; and those whose products have to be folded first.
OTHERS = {
    "KernelSTDP", "DelayAdjustedSTDP", "DelayAdjustedKernelSTDP", "EProp", "OTTT", "STLLR",
    "DeltaRule",
}  # fmt: skip


def test_every_rule_stands_here():
    assert {*rules()} == {*RULES, *OTHERS}


class Mode:
    """How a layer learns: its size and its connection, how it is called, and terms evaluated."""

    def __init__(self, size, connection=nn.Linear, steps=None, backend="auto", online=False):
        self.size, self.connection, self.steps = size, connection, steps
        self.backend, self.online = backend, online


MODES = {
    "a window": Mode((9, 5)),
    "a window by events": Mode((90, 40), layers.Linear),
    "single steps": Mode((9, 5), layers.Linear, steps=1),
    "windows of a few steps": Mode((9, 5), steps=4),
    "plain": Mode((9, 5), backend="plain"),
    "sparse": Mode((90, 40), lambda *size, bias: layers.SparseLinear(*size, 0.2, bias=bias)),
    "sparse, by step": Mode(
        (9, 5), lambda *size, bias: layers.SparseLinear(*size, 0.5, bias=bias), steps=1
    ),
    "a convolution": Mode((3, 4), lambda *size, bias: layers.Conv1d(*size, 3, bias=bias)),
    "online": Mode((9, 5), layers.Linear, online=True),
}
STEPS, BATCH = 12, 3
FOLDERS = {ROOT / name for name in ("engine", "cells", "sparse", "updates")}
CALLED_BY_RULES = {
    ROOT / "engine" / name for name in ("rule.py", "signal.py", "window.py", "terms.py")
}


@cache
def place(file):
    """Where a function belongs; ``None`` if it is no part of the way."""
    path = Path(file)
    if path.parent == ROOT / "rules" or path == Path(own_rules.__file__):
        return "rule"
    way = path.parent in FOLDERS and path not in CALLED_BY_RULES
    return str(path.relative_to(ROOT)) if way else None


@contextmanager
def watching(seen):
    """Counts calls of the package's functions, and how often a rule is asked for its terms."""

    def note(frame, event, _):
        name, where = frame.f_code.co_name, place(frame.f_code.co_filename)
        if event != "call" or where is None:
            return
        if where == "rule":
            by_itself = place(frame.f_back.f_code.co_filename) == "rule"
            seen["terms"] += name == "terms" and not by_itself
        elif name.isidentifier():  # and no comprehension
            seen[f"{where} {name}"] += 1

    gc.disable()  # what is deleted is no part of the way
    sys.setprofile(note)
    try:
        yield
    finally:
        sys.setprofile(None)
        gc.enable()


def learn(rule, mode):
    """The way on which a rule changes weights, why it learns step by step, spikes, and weights."""
    torch.manual_seed(0)
    in_steps = mode.steps == 1 or mode.online
    options = {} if in_steps else {"time_dim": 0}
    inputs, outputs = mode.size
    connection = mode.connection(inputs, outputs, bias=False)
    width = [8] * isinstance(connection, nn.Conv1d)
    neuron = layers.SurrogateLIF if rule.states() else layers.LIF
    shape = (outputs, width[0] - 2) if width else outputs
    layer = la.Serial(connection, neuron(shape, **options))
    for param in layer.parameters():
        nn.init.uniform_(param, 0.0, 8.0 / inputs)
    x, rewards = (torch.rand(STEPS, BATCH, inputs, *width) < 0.2).float(), torch.randn(STEPS, BATCH)
    trainer = RuleTrainer(rule, backend=mode.backend, **options)
    trainer.register_cell("cell", layer.cell)
    rewarded, seen, why, spikes = "MSTDP" in trainer.title, Counter(), None, []
    with watching(seen):
        if mode.online:
            given = {"reward": rewards} if rewarded else {}
            why = la.rules.why_step_by_step(trainer, layer, x, **given)
            spikes.append(la.learn_online(trainer, layer, x, **given))
        else:
            length = mode.steps or STEPS
            for now, reward in zip(x.split(length), rewards.split(length), strict=True):
                spikes.append(layer(now[0] if in_steps else now))
                trainer(**({"reward": reward} if rewarded else {}))
                trainer.update()
    return seen, why, torch.stack(spikes), layer.connection.weight.detach()


@pytest.mark.filterwarnings("ignore:`Clopath` should pair spikes")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", RULES)
def test_the_same_way_and_the_same_bits(name, mode):
    if name == "Sanger" and mode.startswith(("sparse", "a conv")):
        pytest.skip("has no earlier outputs")
    ours, own = (getattr(kind, name)(**RULES[name]) for kind in (la, own_rules))
    learn(ours, MODES[mode])  # what is found once for all rules
    (way, *found), (expected_way, *expected) = (learn(rule, MODES[mode]) for rule in (own, ours))
    assert way == expected_way, {**(way - expected_way), **(expected_way - way)}
    torch.testing.assert_close(found[1:], expected[1:], rtol=0, atol=0)
    assert found[0] == expected[0]
    assert found[1].any()
    assert found[2].std() > 0
