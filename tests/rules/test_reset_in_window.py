"""A neuron that is reset within a window is noticed; one that is reset between windows is not."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import lightning_accum as la
from lightning_accum.nn import LIF, AdaptiveLIF, SurrogateLIF

KINDS = pytest.mark.parametrize("kind", [LIF, AdaptiveLIF, SurrogateLIF])
WORDS = r"Cell `enc` should be reset between windows.*`clear\(\)`, before `reset\(\)`"


def learner(kind: type[nn.Module], time_dim: int | None = None) -> tuple[la.Serial, la.STDP]:
    layer = la.Serial(nn.Linear(3, 2), kind(2, time_dim=time_dim))
    nn.init.constant_(layer.connection.weight, 0.5)  # so that neurons fire
    rule = la.STDP(0.1, -0.1, time_dim=time_dim)
    rule.register_cell("enc", layer.cell)
    return layer, rule


@KINDS
def test_in_every_step(kind: type[nn.Module]) -> None:
    layer, rule = learner(kind)
    for x in torch.ones(5, 1, 3):
        layer.neuron.reset()
        layer(x)
    with pytest.warns(RuntimeWarning, match=WORDS):
        rule()


@KINDS
def test_between_two_presentations(kind: type[nn.Module]) -> None:
    layer, rule = learner(kind, 0)
    for x in torch.ones(2, 5, 1, 3):
        layer.neuron.reset()
        layer(x)
    with pytest.warns(RuntimeWarning, match=WORDS):
        rule()


@KINDS
@pytest.mark.parametrize("time_dim", [None, 0])
@pytest.mark.parametrize("late", [False, True])
def test_between_windows(kind: type[nn.Module], time_dim: int | None, late: bool) -> None:
    layer, rule = learner(kind, time_dim)
    for x in torch.ones(3, 5, 1, 3):
        if not late:
            layer.neuron.reset()
        for now in [x] if time_dim == 0 else x:
            layer(now)
        if late:
            layer.neuron.reset()
        rule()


def test_a_state_that_was_loaded_within_a_window() -> None:
    layer, rule = learner(LIF)
    layer(torch.ones(1, 3))
    layer.neuron.load_state_dict(layer.neuron.state_dict())
    layer(torch.ones(1, 3))
    rule()


APART = "The traces and the neuron of cell `enc` should both pass from window to window, or neither"


def show(layer: la.Serial, rule: la.Rule, resets: list[bool], carry: bool | None) -> None:
    """Shows windows, each after a reset or not, as a callback does."""
    for reset in resets:
        if reset:
            layer.neuron.reset()
        for x in torch.ones(5, 1, 3) if layer.neuron.time_dim is None else torch.ones(1, 5, 1, 3):
            layer(x)
        rule(carry=carry)
        if carry is False:
            rule.clear()


@KINDS
@pytest.mark.parametrize("time_dim", [None, 0])
def test_neurons_that_are_never_reset_while_traces_begin_anew(
    kind: type[nn.Module], time_dim: int | None
) -> None:
    layer, rule = learner(kind, time_dim)
    with pytest.warns(RuntimeWarning) as found:
        show(layer, rule, [False] * 12, carry=False)
    assert len(found) == 1
    assert f"{APART}. Found that traces begin at zero in each" in str(found[0].message)


@KINDS
@pytest.mark.parametrize("time_dim", [None, 0])
def test_neurons_that_are_reset_in_each_window_of_a_stream(
    kind: type[nn.Module], time_dim: int | None
) -> None:
    layer, rule = learner(kind, time_dim)
    with pytest.warns(RuntimeWarning) as found:
        show(layer, rule, [True] * 12, carry=True)
    assert len(found) == 1
    assert f"{APART}. Found `carry=True`, by which traces do" in str(found[0].message)


@pytest.mark.parametrize(
    ("resets", "carry"),
    [
        ([True] * 6, False),
        ([False] * 6, True),
        ([True, True, False, False] * 3, True),  # short streams
        ([False, False, True] * 3, False),
        ([False] * 6, None),  # a loop by hand does not say what a window is
    ],
)
def test_traces_and_neurons_that_agree(resets: list[bool], carry: bool | None) -> None:
    show(*learner(LIF), resets, carry)


@pytest.mark.parametrize("carry", [False, True])
def test_a_rule_without_traces_compares_no_steps(carry: bool) -> None:
    layer = la.Serial(nn.Linear(3, 2), LIF(2))
    rule = la.Hebb(0.1)
    rule.register_cell("enc", layer.cell)
    show(layer, rule, [carry] * 6, carry)


def test_two_cells_of_one_neuron_are_told_once() -> None:
    layer, rule = learner(LIF)
    other = nn.Linear(3, 2)
    rule.register_cell("other", la.Cell(other, layer.neuron))
    layer.connection.register_forward_hook(lambda module, args, out: out + other(args[0]))
    with pytest.warns(RuntimeWarning) as found:
        show(layer, rule, [False] * 6, carry=False)
    assert len(found) == 1


# ---------------------------------------------------------------------- a rule that is not cleared
NOT_CLEARED = r"Found that traces do, and its neuron, a `LIF`, reset in each: call `clear\(\)`"


def loop(rule: la.STDP, layer: la.Serial, cleared: bool, reset: bool, windows: int = 6) -> None:
    for x in torch.ones(windows, 5, 1, 3):
        if reset:
            layer.neuron.reset()
        layer(x)
        rule()
        if cleared:
            rule.clear()


def test_traces_that_pass_on_over_resets() -> None:
    layer, rule = learner(LIF, 0)
    with pytest.warns(RuntimeWarning, match=NOT_CLEARED) as said:
        loop(rule, layer, cleared=False, reset=True)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("cleared", "reset", "windows"), [(True, True, 6), (False, False, 6), (False, True, 2)]
)
def test_traces_and_neurons_that_begin_together(cleared: bool, reset: bool, windows: int) -> None:
    layer, rule = learner(LIF, 0)
    loop(rule, layer, cleared, reset, windows)


def test_a_rule_that_carries_nothing_may_be_left_uncleared() -> None:
    layer = la.Serial(nn.Linear(3, 2), LIF(2, time_dim=0))
    rule = la.STDP(0.1, -0.1, time_dim=0, carry=False)
    rule.register_cell("enc", layer.cell)
    loop(rule, layer, cleared=False, reset=True)


def test_it_is_told_once_for_a_neuron() -> None:
    layer, rule = learner(LIF)
    feedback = nn.Linear(2, 2)
    rule.register_cell("back", la.Cell(feedback, layer.neuron))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for x in torch.ones(3, 5, 1, 3):
            for now in x:
                layer.neuron.reset()
                feedback(layer(now))
            rule()
    assert sum("should be reset between windows" in str(each.message) for each in found) == 1
