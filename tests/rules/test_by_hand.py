"""Rules that are called by hand at times at which little is learned, or something else."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lightning_accum import STDP, Cell, Hebb, Rule, Updater, attach_updater
from lightning_accum.nn import LIF


def _modules() -> tuple[nn.Linear, LIF]:
    fc = nn.Linear(3, 2, bias=False)
    nn.init.constant_(fc.weight, 0.5)
    return fc, LIF(2)


def _run(fc: nn.Linear, lif: LIF, steps: int = 10) -> None:
    for _ in range(steps):
        lif(fc(torch.ones(1, 3)))


def _learning(rule: Rule) -> tuple[nn.Linear, LIF, Rule]:
    """Returns the modules of a cell that is registered with a rule, and the rule."""
    fc, lif = _modules()
    rule.register_cell("enc", Cell(fc, lif))
    return fc, lif, rule


def test_changes_in_another_updater_that_nobody_applies() -> None:
    fc, lif, rule = _learning(STDP(0.1, -0.1))
    own = Updater(fc, "weight")
    rule.use_updater("enc", own)
    for _ in range(10):
        _run(fc, lif, 1)
        rule()
        attach_updater(fc)()  # not the one in which changes are pending
    with pytest.warns(RuntimeWarning, match=r"cell `enc` .*Found 10 calls, and none applied"):
        rule.eval()


@pytest.mark.parametrize("length", [1, 5])
def test_a_rule_that_sees_the_last_of_several_sequences(length: int) -> None:
    fc, lif, rule = _learning(STDP(0.1, -0.1))
    for window in range(5):
        for _ in range(4):
            lif.reset()
            rule.clear()
            _run(fc, lif, length)
        if window == 2:
            with pytest.warns(RuntimeWarning, match=rf"`enc` .*Found {9 * length} steps that were"):
                rule()
        else:
            rule()  # told once
        rule.update()
        rule.clear()


def test_steps_that_are_dropped_once_before_each_window() -> None:
    fc, lif, rule = _learning(STDP(0.1, -0.1))
    for _ in range(9):
        lif.reset()
        _run(fc, lif)  # until the neurons have settled
        rule.clear()
        _run(fc, lif)
        rule()
        rule.update()
        rule.clear()


def test_a_rule_that_is_cleared_and_a_neuron_that_is_not_reset() -> None:
    fc, lif, rule = _learning(STDP(0.1, -0.1))
    for window in range(6):
        rule.clear()
        _run(fc, lif)
        if window == 3:
            with pytest.warns(RuntimeWarning, match=r"`enc` .*LIF`, not reset: call `reset\(\)`"):
                rule()
        else:
            rule()
        rule.update()


@pytest.mark.parametrize("kind", [STDP, Hebb])
def test_streams_and_sequences_that_begin_together(kind: type[STDP]) -> None:
    fc, lif, rule = _learning(kind(0.1, -0.1) if kind is STDP else kind(0.1))
    for window in range(20):
        if window > 9:
            lif.reset()
            rule.clear()
        _run(fc, lif)
        rule()
        rule.update()


@pytest.mark.parametrize("ends", ["modules", "rule"])
def test_windows_of_one_step_whose_traces_begin_at_zero(ends: str) -> None:
    fc, lif, rule = _learning(STDP(0.1, -0.1))
    for _ in range(10):
        rule.clear()
        _run(fc, lif, 1)
        rule()
        rule.update()
    kept, ended = ([rule], [fc, lif]) if ends == "modules" else ([fc, lif], [rule])
    del rule, fc, lif
    with pytest.warns(RuntimeWarning, match=r"Found 10 windows of cell `enc`, each of one step"):
        ended.clear()
    kept.clear()


def test_a_cell_that_was_added_instead_of_registered() -> None:
    fc, lif = _modules()
    rule = STDP(0.1, -0.1)
    rule.add_cell("enc", Cell(fc, lif), params=["weight"])
    for call in (rule, rule.update):
        _run(fc, lif, 1)
        with pytest.raises(RuntimeError, match=r"call `del_cell` and `register_cell\('enc', cell"):
            call()
    rule.eval()
    del rule  # says nothing that cannot be caught


def test_a_cell_of_which_a_copy_runs() -> None:
    fc, lif = _modules()
    rule = STDP(0.1, -0.1)
    cell = Cell(*copy.deepcopy((fc, lif)))
    rule.register_cell("enc", cell)
    for _ in range(7):
        _run(fc, lif, 1)
        rule()
    with pytest.warns(RuntimeWarning, match="If a copy of them runs, register the cell with"):
        rule()
