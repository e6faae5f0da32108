"""Processes that train other cells, by other settings, from more batches or none, are told."""

import pytest

SCRIPT, RANKS = "alike_run.py", [2]


def test_processes_that_are_alike_are_told_nothing(found):
    assert [each["alike"] for each in found[2]] == [{"raised": "enough", "warned": []}] * 2


@pytest.mark.parametrize(
    ("case", "what", "first", "second"),
    [
        ("cells", "cells", "'weight': [2, 3]", "'weight': [4, 3]"),
        ("rate", "cells", "'lr': 0.01", "'lr': 0.02"),
        ("one learner", "callbacks", "'CellTrainerCallback[learner]'", "{}"),
        ("every", "settings of updates", "'apply_every_n_batches': 1", "_n_batches': 2"),
    ],
)
def test_other_cells_or_settings_raise_in_every_process(found, case, what, first, second):
    for each in found[2]:
        said = each[case]["raised"]
        assert f"All processes of a fit should have the same {what}." in said
        before, after = said.split("in process 0")
        assert first in before
        assert second in after
        assert "in process 1" in after


@pytest.mark.parametrize("case", ["same", "loaded"])
def test_processes_of_a_loop_that_are_alike_learn(found, case):
    assert [each["loops"][case] for each in found[2]] == [{"raised": "", "moved": True}] * 2


@pytest.mark.parametrize(
    ("case", "what", "of_one"), [("seeds", "weights", "checksum"), ("layers", "cells", "[2, 3]")]
)
def test_other_weights_or_cells_raise_in_every_process_of_a_loop(found, case, what, of_one):
    for each in found[2]:
        said = each["loops"][case]["raised"]
        assert f"should have the same {what}." in said
        assert of_one in said
        assert not each["loops"][case]["moved"]


def test_a_process_that_records_nothing_is_told(found):
    first, second = (each["fits"] for each in found[2])
    assert first["none rests"] == second["none rests"] == first["second rests"] == []
    (said,) = second["second rests"]
    assert "Cell `a` should record activity in each process of a fit." in said
    assert "`weight` changed" in said


def test_processes_that_all_record_nothing_are_told_once(found):
    first, second = (each["fits"]["all rest"] for each in found[2])
    (said,) = first
    assert "Cell `a` should record activity for `Hebb` to learn from." in said
    assert second == []
