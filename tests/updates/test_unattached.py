"""Constraints and bounds of an updater that rules do not use are told when they get another one."""

from __future__ import annotations

import copy
import pickle
import warnings

import pytest
from torch import nn

from lightning_accum import Cell, Clamp, Hebb, Updater, attach_updater, get_updater
from lightning_accum.functional import bound_power
from lightning_accum.updates.attached import set_updater

CLAMP = r"Found `Clamp\(min=0.0, max=1.0\)` on another one"
BOUND = r"Found a bound of `weight` on another one"


def constrained(fc: nn.Module) -> Updater:
    updater = Updater(fc, "weight")
    updater.register_constraint(Clamp(0.0, 1.0))
    return updater


def bounded(fc: nn.Module) -> Updater:
    updater = Updater(fc, "weight")
    updater.weight.fullbound(bound_power, 1.0, 0.0, power=1.0)
    return updater


@pytest.mark.parametrize(("make", "words"), [(constrained, CLAMP), (bounded, BOUND)])
def test_a_rule_takes_another_updater(make: type, words: str) -> None:
    fc = nn.Linear(2, 1)
    make(fc)
    with pytest.warns(UserWarning, match=words):
        Hebb(0.1).register_cell("enc", Cell(fc, nn.Identity()))
    set_updater(fc, None)
    attach_updater(fc)  # said once


def test_an_updater_that_still_exists() -> None:
    fc = nn.Linear(2, 1)
    updater = constrained(fc)
    with pytest.warns(UserWarning, match=CLAMP):
        attach_updater(fc)
    assert get_updater(fc) is not updater


def test_a_second_updater_beside_the_one_that_rules_use() -> None:
    fc = nn.Linear(2, 1)
    attach_updater(fc, "weight")
    constrained(fc)
    with pytest.warns(UserWarning, match=CLAMP):
        Hebb(0.1).register_cell("enc", Cell(fc, nn.Identity()))


@pytest.mark.parametrize("make", [constrained, bounded])
def test_an_updater_that_is_attached(make: type) -> None:
    fc = nn.Linear(2, 1)
    set_updater(fc, make(fc))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Hebb(0.1).register_cell("enc", Cell(fc, nn.Identity()))
        set_updater(fc, None)
        attach_updater(fc)


def test_an_updater_without_limits_and_one_whose_copy_is_dropped() -> None:
    fc = nn.Linear(2, 1)
    Updater(fc, "weight")
    used = attach_updater(fc, "weight")
    used.weight.fullbound(bound_power, 1.0, 0.0, power=1.0)
    used.sibling()
    copy.deepcopy(used)
    set_updater(fc, None)
    del used
    attach_updater(fc)


def test_copies_of_the_module_know_it_and_load_anywhere() -> None:
    fc = nn.Linear(2, 1)
    constrained(fc)
    assert b"lightning_accum." not in pickle.dumps(fc)
    for each in (fc, copy.deepcopy(fc)):
        with pytest.warns(UserWarning, match=CLAMP):
            attach_updater(each)
