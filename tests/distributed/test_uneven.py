"""One process has a batch fewer than the other."""

from pathlib import Path

import pytest
from run_ranks import run_ranks


@pytest.mark.parametrize("learner", ["with", "without"])
def test_a_fit_ends_as_without_a_learner(learner, tmp_path):
    """The process that has more waits for gradients, or updates, until the other has ended."""
    folder = tmp_path / learner
    folder.mkdir()
    first, second = run_ranks(Path(__file__).with_name("uneven_run.py"), 2, folder)
    assert second == {"raised": "", "batches": 3}
    assert first == {"raised": "RuntimeError", "batches": 4}
