"""A process that applies its changes without those of the others is told so, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from run_ranks import run_ranks


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return run_ranks(Path(__file__).with_name("alone_run.py"), 2, tmp_path_factory.mktemp("alone"))


@pytest.mark.parametrize(
    ("case", "told"),
    [("every", [0, 1]), ("optimizer", [0, 1]), ("export", [0, 1]), ("second", [1])],
)
def test_changes_that_were_not_summed_are_told_once(
    found: list[dict[str, Any]], case: str, told: list[int]
) -> None:
    assert not torch.equal(found[0][case]["weight"], found[1][case]["weight"])
    for rank, each in enumerate(found):
        assert len(each[case]["said"]) == (rank in told)
        for said in each[case]["said"]:
            assert "The changes of `weight` of `Linear (cell a)`" in said
            assert "all 2 processes" in said
            assert f"Found those of process {rank} " in said
            assert ("exported as gradients" in said) == (case == "export")


@pytest.mark.parametrize("case", ["fabric", "summed export", "own sum"])
def test_changes_that_were_summed_are_told_nothing(found: list[dict[str, Any]], case: str) -> None:
    assert torch.equal(found[0][case]["weight"], found[1][case]["weight"])
    assert [each[case]["said"] for each in found] == [[], []]
